// The kernels of the table and what they are tested on: problems of every kind that a
// kernel is made for. A kernel takes part in what it supports, so a new one is tested by being in the table.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cuda/launch/kernel_algorithm.h"
#include "gradient_lines.h"
#include "plan/algorithms.h"
#include "problem/activation.h"

namespace convtune {
namespace cuda {

// How a test over them is named.
inline void PrintTo(const KernelAlgorithm* algorithm, std::ostream* out) {
  *out << algorithm->name();
}

}  // namespace cuda

inline std::vector<const cuda::KernelAlgorithm*> own_algorithms() {
  std::vector<const cuda::KernelAlgorithm*> own;
  for (const Algorithm* algorithm : algorithms(Device::Kind::cuda))
    if (const cuda::KernelAlgorithm* kernel = cuda::kernel_algorithm(*algorithm)) own.push_back(kernel);
  return own;
}

// A built-in case or a line; in TF32 where it does not say.
inline ConvProblem tf32(const std::string& text) {
  ConvProblem problem = find_problem(text);
  if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
  return problem;
}

// Keeps the problems that an algorithm takes; where those are few, their gradients of weights, too.
inline std::vector<ConvProblem> supported(const Algorithm& algorithm, const DeviceInfo& device,
                                          std::vector<ConvProblem> problems) {
  const auto refused = [&](const ConvProblem& problem) { return !algorithm.supports(problem, device); };
  auto gradients = problems;
  std::erase_if(problems, refused);
  if (problems.size() >= 4) return problems;
  std::erase_if(gradients, [](const ConvProblem& a) { return a.direction != Direction::forward; });
  for (ConvProblem& a : gradients)
    a.direction = Direction::backward_weights, a.activation = Activation::none, a.rounding = Rounding::once,
    a.residual = false, a.alpha = a.beta = 0, a.cache = 0;
  std::erase_if(gradients, refused);
  problems.insert(problems.end(), gradients.begin(), gradients.end());
  return problems;
}
// At most `most` of the list, from all over the list.
template <class T>
std::vector<T> spread(const std::vector<T>& list, std::size_t most) {
  if (list.size() <= most) return list;
  std::vector<T> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(list[i * list.size() / most]);
  return some;
}

// Checks this layer in half precision: of both types, both layouts and every epilogue in turns.
inline ConvProblem in_half(ConvProblem problem, std::size_t turn) {
  const bool f16 = turn % 3 == 1;
  problem.dtype = f16 ? DType::f16 : DType::bf16;
  problem.precision = f16 ? Precision::fp16 : Precision::bf16;
  if (turn % 4 == 0) problem.dtype.bias = DType::f32;
  if (turn % 5 < 3) problem.layout = Layout::nhwc;
  if (problem.direction == Direction::backward_weights) {  // without an epilogue; of layouts as it says
    problem.layout = problem.c > 4 && turn % 5 < 3 ? Layout::nhwc : problem.layout;
    return problem;
  }
  problem.residual = turn % 7 == 1;
  if (turn % 7 == 2) problem.rounding = Rounding::eager;
  return problem;
}
// All of them, then all of them in half precision.
inline std::vector<ConvProblem> with_halves(std::vector<ConvProblem> problems) {
  const std::size_t count = problems.size();
  for (std::size_t i = 0; i < count; ++i) problems.push_back(in_half(problems[i], i));
  return problems;
}

// Blocks have several tiles of these, one after the other: residuals may be on their way, or wait in a second
// place, while the outputs of the tile before are finished.
inline std::vector<ConvProblem> tile_after_tile_problems() {
  std::vector<ConvProblem> problems;
  for (const char* line :
       {"mb48ic64ih56oc256kh1", "mb16ic3ih224oc64kh3ph1", "mb256ic1ih28oc32kh5ph2",
        "mb64ic128ih28oc128kh3ph1", "g32mb32ic128ih56oc128kh3ph1", "g144mb16ic144ih56oc144kh3ph1"})
    problems.push_back(
        parse_problem(std::string(line) + " act=relu residual=1 dtype=bf16 precision=bf16 layout=nhwc"));
  for (const char* line : {"mb16ic64ih56oc256kh1", "mb16ic256ih56oc64kh1", "mb64ic128ih28oc128kh3ph1"})
    problems.push_back(parse_problem(std::string(line) + " act=relu residual=1 precision=tf32"));
  return problems;
}

// Small problems, each of them what some kernel is made for or an edge of that: an oracle computes all of
// their outputs, and compute-sanitizer, under which a kernel is a hundred times slower, goes through them.
inline std::vector<ConvProblem> small_problems() {
  std::vector<ConvProblem> problems;
  for (const char* line : {
           // First layers, with weights that stay and in stages; x read 1, 2 and 4 columns at a time.
           "mb1ic3ih43oc96kh11sh4ph2",
           "mb1ic3ih32oc64kh7sh2ph3 act=relu",
           "mb2ic4ih16oc40kh3ph1",
           "mb2ic3ih21iw23oc20kh5kw3sh2sw4ph2pw1 act=relu",
           "mb2ic2ih17iw29oc10kh3kw5sh1sw2ph2",
           "mb2ic3ih14iw18oc12kh3ph1 bias=0 act=relu",
           "mb1ic3ih16oc16kh3ph1",
           "mb1ic2ih20iw22oc8kh5sh2ph2",
           "mb2ic3ih16iw24oc16kh4sh4",
           "mb1ic3ih20oc32kh5ph2 precision=fp32",
           // Bulk copies and boxes serve a stride of 4 where x and y are aligned.
           "mb2ic3ih21iw37oc20kh5kw3sh2sw4ph2pw1 act=relu",
           "mb2ic2ih17iw61oc16kh3kw6sh1sw4ph2",
           "mb3ic3ih14iw64oc40kh3sh4ph1 bias=0 act=relu",
           "mb1ic3ih16iw64oc16kh3sh4ph1",
           "mb2ic2ih20iw44oc8kh5sh4ph2",
           "mb1ic4ih16iw280oc64kh4sh4",
           // Patches.
           "mb2ic3ih50iw96oc70kh16sh16 act=relu",
           "mb3ic2ih17iw64oc10kh8sh8",
           "mb2ic5ih20iw32oc40kh4sh4 bias=0 act=relu",
           "mb2ic1ih40iw96oc40kh8kw32sh8sw32",
           // Inner layers; what is stored 16 bytes at a time where it is aligned.
           "mb2ic19ih21iw23oc70kh5kw3sh2sw4ph2pw1 act=relu",
           "mb2ic8ih17iw29oc10kh3kw5sh1sw2ph2",
           "mb3ic12ih14iw18oc12kh3ph1 bias=0 act=relu",
           "mb1ic13ih16iw16oc66kh1",
           "mb5ic16ih7oc16kh3ph1",
           "mb2ic40ih12oc24kh3ph1",
           "mb3ic32ih8oc33kh1",
           "mb1ic64ih14oc64kh3ph1",
           "mb1ic96ih9iw13oc80kh3sh2ph1 act=relu",
           "mb2ic64ih10oc136kh1",
           "mb3ic64ih14oc40kh1",
           "mb3ic64ih12iw14oc64kh1",
           "mb1ic32ih15oc24kh3ph2dh1",
           // Pixels of several images in a tile, 4 at a time and one by one; sums that blocks share.
           "mb3ic40ih6iw10oc48kh1 residual=1 act=relu",
           "mb5ic70ih7oc40kh1sh2 residual=1 act=clip:-2:9",
           "mb1ic200ih6oc24kh3ph1 residual=1",
           "mb2ic24ih10oc18kh3ph1 precision=fp32",
           "mb2ic24ih10oc18kh3ph1 precision=fp16 act=relu",
           "mb2ic24ih10oc18kh3ph1 precision=bf16",
           // Images, halos and phases in one tile; patches of many rows.
           "mb5ic16ih7oc72kh3ph1",
           "mb2ic8ih13iw20oc72kh3kw5ph2pw4dh1dw1",
           "mb2ic16ih20iw25oc24kh3sh3sw2ph1pw0",
           "mb2ic3ih48iw64oc40kh16sh16 act=relu",
           // Channels last, in chunks of channels and with too few for one.
           "mb2ic40ih12oc24kh3ph1 layout=nhwc bias=0 act=relu",
           "mb2ic24ih10oc20kh3ph1 precision=bf16 layout=nhwc",
           "mb1ic64ih9oc64kh3ph1 layout=nhwc",
           "mb1ic3ih20oc32kh3sh2ph1 layout=nhwc",
           // Groups, and few products a sum.
           "mb2g3ic15ih9oc21kh3ph2dh1 layout=nhwc",
           "mb2g6ic6ih13oc12kh5ph2 pad_bottom=0",
           "mb2g3ic3ih13iw17oc6kh3kw5sh1sw2ph1pw2 precision=fp32 act=relu",
           "mb2g2ic8ih12iw16oc8kh3ph1",
           "mb2ic1ih9iw11oc10kh5ph2 precision=bf16 bias=0",
           "mb5g4ic4ih7oc4kh3ph1 precision=fp32",
           "mb2g4ic4ih8iw16oc4kh3ph1 precision=fp32",
           "g24mb1ic24ih13oc24kh7ph3",
           "g8mb1ic64ih12oc64kh3ph1",
           "g8mb1ic64ih9iw40oc64kh3ph1 residual=1 act=relu",
           // Depthwise, channels last.
           "mb2g3ic3ih13iw17oc3kh3kw5sh1sw2ph1pw2 precision=fp32 act=relu layout=nhwc",
           "mb2g8ic8ih12iw16oc8kh3ph1 layout=nhwc",
           "mb1g12ic12ih7oc12kh7ph3 precision=bf16 bias=0 layout=nhwc",
           "mb1g4ic4ih14oc4kh13ph6 precision=fp32 layout=nhwc",
           "g37mb2ic37ih15oc37kh5sh2ph2 layout=nhwc act=relu",
           "g20mb1ic20ih16iw11oc20kh3ph2dh1 layout=nhwc",
           "g24mb3ic24ih13iw19oc24kh7ph3 layout=nhwc act=relu",
           "g40mb5ic40ih7oc40kh6ph2 layout=nhwc",
           "g16mb2ic16ih20iw33oc16kh5kw6sh2sw1ph1pw2 layout=nhwc",
           "g32mb2ic32ih14oc32kh7ph3 layout=nhwc act=relu",
           // Few channels a group, channels last.
           "mb2g8ic32ih13iw17oc32kh3ph1 layout=nhwc act=relu",
           "mb1g4ic32ih15oc64kh3sh2ph1 layout=nhwc",
           "mb2g2ic112ih9oc112kh3ph1 layout=nhwc bias=0",
           "mb1g3ic36ih11iw20oc60kh3kw5ph1pw2dh1 layout=nhwc",
           "mb1g3ic96ih12oc96kh3sh2ph1 layout=nhwc act=relu",
           // Many channels a group: those of a stage, and filters of a tile, end with theirs.
           "mb2g2ic224ih9oc224kh3ph1 layout=nhwc act=relu",
           "mb1g3ic216ih13iw11oc240kh3sh2ph1 layout=nhwc residual=1",
           "mb3g4ic160ih7oc268kh1 layout=nhwc act=relu",
           "mb1g2ic80ih10iw14oc144kh3kw2ph2dh1 layout=nhwc bias=0",
           // Stages of several taps, channels last; a long sum of few outputs.
           "mb1ic8ih13iw11oc40kh5ph2 layout=nhwc act=relu",
           "mb2ic24ih19iw14oc33kh3kw2sh2dw2ph1pw2 layout=nhwc",
           "mb1ic320ih5oc64kh3ph1 layout=nhwc residual=1",
           // Weights that stay, of several tiles of filters.
           "mb2ic64ih20oc120kh3ph1 layout=nhwc act=relu",
           "mb1ic128ih30iw20oc200kh3ph1 layout=nhwc",
           // Pixels in NCHW, of which TMA can copy whole pieces of 16 bytes, and cannot.
           "mb2ic72ih12iw14oc70kh1 dtype=bf16 precision=bf16 residual=1",
           "mb3ic72ih14oc40kh1 dtype=bf16 precision=bf16",
           // As above, of filters that are no points: with a residual, and with frames of a cache.
           "mb2ic40ih12iw16oc72kh3ph1 act=relu dtype=bf16 precision=bf16 residual=1",
           "mb1ic72id2ih6iw24oc136kd3kh3kw3pd2ph1pw1 dtype=f16 precision=fp16 pad_back=0 cache=1",
           // In three dimensions, but computed in two: filters over time, over frames, over points.
           "mb2ic24id5ih6iw7oc40kd3kh1kw1pd2ph0pw0 layout=nhwc pad_back=0 act=relu",
           "mb1ic16id6ih8iw8oc24kd3kh1kw1sd2sh1sw1pd1ph0pw0 residual=1",
           "mb2ic64id3ih9iw12oc64kd1kh3kw3pd0ph1pw1 layout=nhwc",
           "mb2ic64id3ih9iw12oc72kd1kh3kw3pd0ph1pw1 dtype=bf16 precision=bf16 residual=1",
           "mb1ic40id3ih5iw6oc24kd1kh1kw1 act=relu",
           // In three dimensions: causal, by strides, dilated over time.
           "mb2ic24id4ih5iw6oc40kd3kh3kw3pd2ph1pw1 layout=nhwc pad_back=0 act=relu",
           "mb1ic40id7ih6iw9oc24kd3kh3kw3sd2sh2sw2pd1ph1pw1 layout=nhwc residual=1",
           "mb1ic64id5ih7iw7oc72kd2kh3kw1dd1dh0dw0pd1ph1pw0",
           "mb2ic16id5ih6iw8oc24kd3kh3kw3sd2sh1sw1pd1ph1pw1 residual=1 act=relu",
           // Tiles that leave out frames of padding, by several consumers and blocks of a cluster.
           "mb2ic136id5ih5iw8oc200kd3kh3kw3pd2ph1pw1 layout=nhwc pad_back=0 act=relu",
           "mb1ic96id4ih9iw9oc136kd3kh3kw3sd2sh2sw2pd2ph1pw1 layout=nhwc residual=1",
           // Tiles of several volumes, and of frames that meet no frame of x.
           "mb3ic16id3ih4iw5oc40kd3kh3kw3pd1ph1pw1 act=relu",
           "mb1ic20id3ih10iw12oc72kd3kh3kw3pd4ph1pw1 bias=0",
           // Frames before x's in a tensor of their own: all that are padded, one of them; with strides, over
           // time alone.
           "mb2ic24id4ih5iw6oc40kd3kh3kw3pd2ph1pw1 layout=nhwc pad_back=0 cache=2 act=relu",
           "mb1ic40id1ih9iw12oc24kd3kh3kw3pd2ph1pw1 pad_back=0 cache=1 residual=1",
           "mb2ic72id3ih6iw9oc40kd3kh3kw3sd2sh2sw2pd2ph1pw1 layout=nhwc pad_back=0 cache=2",
           "mb1ic64id2ih10iw7oc72kd3kh1kw1dd1dh0dw0pd4ph0pw0 pad_back=0 cache=3 bias=0",
           // Nothing but a frame of padding is met.
           "mb2ic48id1ih6iw9oc16kd1kh3kw3sd3sh1sw1pd1ph1pw1 layout=nhwc",
           "mb1ic3id1ih6iw9oc16kd1kh3kw3sd3sh1sw1pd1ph1pw1",
           // First layers in three dimensions: padded, by strides, dilated over time, with filters of any
           // edges.
           "mb2ic3id6ih12iw16oc20kd3kh3kw3pd1ph1pw1 act=relu",
           "mb2ic3id9ih11iw12oc16kd3kh5kw7sd2sh1sw1pd2ph2pw3",
           "mb1ic2id8ih13iw10oc24kd3kh4kw2sd1sh2sw2dd1dh0dw0pd2ph1pw1 pad_back=0",
           // In fp32, padded over time and not.
           "mb2ic3id5ih9iw7oc20kd3kh3kw3pd1ph1pw1 precision=fp32 act=relu",
           "mb1g2ic10id5ih6iw8oc6kd3kh3kw2sd2sh1sw1dd1dh0dw0pd3ph1pw0 precision=fp32",
           "mb2ic3id6ih9iw7oc20kd3kh3kw3pd0ph1pw1 precision=fp32 act=relu",
           "mb1ic3id7ih12iw10oc64kd3kh3kw1 precision=fp32 bias=0",
           "mb1g2ic10id7ih6iw8oc6kd2kh3kw2sd2sh1sw1dd1dh0dw0 precision=fp32",
           // Groups of eight channels and more.
           "mb2g3ic48ih9oc42kh3ph1",
           "mb1g4ic32id4ih6iw5oc24kd3kh3kw2pd1ph1pw0 residual=1",
           // Few filters, channels last: as columns of the filter, of tiles that end within a row.
           "mb1ic32ih12iw37oc3kh7ph3 layout=nhwc act=relu",
           "mb2ic20ih13iw21oc4kh3kw5sh2sw3ph1pw2 layout=nhwc residual=1",
           "mb1ic72ih9iw40oc1kh3ph2dh1 layout=nhwc bias=0",
           "mb1ic24id4ih9iw12oc2kd3kh3kw3pd1ph1pw1 layout=nhwc act=relu",
           // Few channels a group in three dimensions.
           "g8mb2ic32id5ih10iw13oc32kd3kh3kw3pd1ph1pw1 layout=nhwc act=relu",
           "g3mb1ic36id6ih9iw11oc60kd3kh3kw2sd2sh2sw2dd0dh0dw1pd2ph1pw1 layout=nhwc",
           "g2mb1ic112id4ih9iw9oc112kd2kh3kw3dd1dh0dw0pd1ph1pw1 residual=1 dtype=f16 precision=fp16",
           // Depthwise in three dimensions: causal, by strides, dilated over time; large filters; rows of any
           // length.
           "mb2g24ic24id9ih12iw16oc24kd3kh3kw3pd1ph1pw1 layout=nhwc act=relu",
           "mb2g16ic16id7ih9iw16oc16kd3kh3kw3pd2ph1pw1 pad_back=0",
           "mb1g20ic20id8ih7iw9oc20kd3kh3kw3sd2sh2sw2pd1ph1pw1 residual=1",
           "mb1g12ic12id6ih10iw12oc12kd5kh5kw5pd2ph2pw2 residual=1 act=relu",
           "mb1g9ic9id7ih8iw11oc9kd3kh2kw3sd1sh1sw2dd1dh0dw1pd2ph1pw2 layout=nhwc",
           "mb2g6ic6id4ih5iw7oc6kd1kh3kw3sd3sh1sw1pd0ph1pw1 bias=0",
       })
    problems.push_back(tf32(line));
  for (const char* line : transposed_lines()) problems.push_back(tf32(line));
  for (const char* line : gradient_lines()) problems.push_back(tf32(line));
  return with_halves(problems);
}

// The problem with each activation.
inline std::vector<ConvProblem> with_each_activation(ConvProblem problem) {
  if (problem.direction == Direction::backward_weights) return {problem};  // has none
  problem.activation = Activation::none;
  std::vector<ConvProblem> problems;
  for (const ActivationRow& row : activation_rows()) {
    const char* const parameters[] = {"", ":0.25", ":-0.5:2"};
    problems.push_back(parse_problem(
        fmt::format("{} act={}{}", to_string(problem), row.name(), parameters[row.parameters()])));
  }
  return problems;
}

// The problems of suites, in both layouts where groups make them worth it: `batch` images of each at most.
inline std::vector<ConvProblem> suite_problems(std::int64_t batch, const std::vector<std::string>& suites = {
                                                                       "stem", "body", "depthwise", "half"}) {
  std::vector<ConvProblem> problems;
  for (const std::string& suite : suites)
    for (ConvProblem problem : load_suite(suite)) {
      if (problem.n == 0) continue;
      problem.n = std::min(problem.n, batch);
      problem.precision = problem.dtype == DType::f32 ? Precision::tf32 : Precision::bf16;
      problems.push_back(problem);
      if (problem.groups == 1 || problem.layout == Layout::nhwc) continue;
      problem.layout = Layout::nhwc;
      problem.name += "_nhwc";
      problems.push_back(problem);
    }
  return problems;
}

// Numbers low to high, one after the other.
class Picker {
 public:
  explicit Picker(std::uint64_t seed) : seed_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_bits(seed_, position_++) %
                                           static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t seed_, position_ = 0;
};

// Problem number `index` of a sequence that goes round the kinds of layers: first layers, those of stride 4,
// inner layers, patches, groups, inner layers with channels last in eights, groups of those, few and many
// channels each, and depthwise.
inline ConvProblem random_layer(std::uint64_t index) {
  Picker pick(index);
  ConvProblem a;
  a.n = pick(1, 5);
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::tf32;
  const bool wide = pick(0, 3) == 0;
  const auto filter = [&](std::int64_t most) { a.r = pick(1, most), a.s = pick(1, most); };
  const auto strides = [&](std::int64_t most) { a.stride_h = pick(1, most), a.stride_w = pick(1, most); };
  const auto dilations = [&](std::int64_t most) {
    a.dilation_h = pick(1, most), a.dilation_w = pick(1, most);
  };
  const auto padding = [&] {
    a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r);
    a.pad_left = pick(0, a.s), a.pad_right = pick(0, a.s);
  };
  // Above the extent of a dilated filter.
  const auto image = [&](std::int64_t rows, std::int64_t columns) {
    a.h = a.dilation_h * (a.r - 1) + pick(1, rows), a.w = a.dilation_w * (a.s - 1) + pick(1, columns);
    if (pick(0, 1) == 1) a.w = (a.w + 3) / 4 * 4;  // for bulk copies
  };
  switch (index % 8) {
    case 0:
      a.c = pick(1, 4), a.k = pick(1, 140);
      filter(11), strides(5), padding(), image(30, wide ? 290 : 60);
      break;
    case 1:
      a.c = pick(1, 4), a.k = pick(1, 140);
      filter(11), strides(5), padding(), image(30, wide ? 560 : 230);
      a.w += 32, a.stride_w = 4;
      break;
    case 2:
      a.c = pick(8, 70), a.k = pick(1, 200);
      filter(5), strides(3), dilations(3), padding(), image(30, wide ? 290 : 50);
      break;
    case 3: {
      constexpr std::int64_t kColumns[] = {4, 8, 16, 32};
      a.c = pick(1, 5), a.k = pick(1, 300);
      a.s = a.stride_w = kColumns[pick(0, 3)];
      a.r = a.stride_h = a.s == 4 ? 4 * pick(1, 3) : a.s == 8 ? 2 * pick(1, 6) : pick(1, 16);
      a.h = a.r * pick(1, 12) + pick(0, a.r - 1), a.w = 32 * pick(1, wide ? 16 : 4);
      break;
    }
    case 4:
      a.groups = wide ? 1 : pick(1, 9);
      a.c = a.groups * pick(1, 4), a.k = a.groups * pick(1, wide ? 40 : 9);
      filter(a.c == a.groups ? 11 : 4), strides(3), dilations(wide ? 3 : 1), padding(), image(30, 40);
      break;
    case 5:
      a.layout = Layout::nhwc;
      a.c = 8 * pick(1, 20), a.k = pick(1, 3) * pick(1, 4) * pick(1, 40);
      filter(wide ? 7 : 3), strides(wide ? 5 : 2), dilations(wide ? 3 : 1), padding(), image(20, 30);
      break;
    case 6:
      a.layout = Layout::nhwc;
      a.groups = pick(2, 6);
      if (pick(0, 2) == 0)
        a.c = a.groups * 8 * pick(4, 20), a.k = a.groups * pick(1, 2) * pick(2, 8) * pick(4, 10);
      else
        a.c = a.groups * pick(1, 40), a.k = a.groups * (wide ? pick(1, 40) : 4 * pick(1, 8));
      filter(wide ? 5 : 3), strides(2), dilations(wide ? 2 : 1), padding(), image(20, 30);
      break;
    default: {
      const bool plain = pick(0, 2) > 0;  // in eights, and column by column
      a.layout = Layout::nhwc;
      a.groups = a.c = a.k = plain ? 8 * pick(1, 10) : pick(0, 1) == 1 ? 4 * pick(1, 20) : pick(1, 70);
      filter(wide ? 12 : 5), strides(3), dilations(!plain && pick(0, 4) == 0 ? 3 : 1);
      if (plain) a.r = pick(5, 7), a.s = pick(5, 7), a.stride_w = 1;
      padding(), image(20, 30);
    }
  }
  return a;
}
inline std::vector<ConvProblem> random_layers(std::uint64_t count) {
  std::vector<ConvProblem> problems(count);
  for (std::uint64_t i = 0; i < count; ++i) problems[i] = random_layer(i);
  return with_halves(problems);
}

}  // namespace convtune
