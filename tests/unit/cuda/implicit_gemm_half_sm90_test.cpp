// The implicit GEMM in half precision without a GPU: what TMA, wgmma and the stores would meet, step by step
// on a host; refusals; and that what is offered compiles without spills.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cuda/algorithms/implicit_gemm_half_sm90/config.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::implicit_gemm_half_sm90_test {
namespace {

using Kernel = ImplicitGemmHalfSm90;
constexpr std::int64_t kSmem = 227 * 1024;

const Algorithm& algorithm() {
  return cuda::implicit_gemm_half_sm90();
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " layout=nhwc dtype=bf16");
}

// ---- The kernel on a host: integers in place of halves, so that every difference shows ------------

int input_at(const ConvExtents& a, int image, int row, int column, int channel) {
  if (image < 0 || image >= a.n || row < 0 || row >= a.h || column < 0 || column >= a.w || channel >= a.c)
    return 0;
  return static_cast<int>(
             random_bits(1, static_cast<std::uint64_t>(a.input_offset(image, channel, row, column))) % 7) -
         3;
}
int weight_at(long long index) {
  return static_cast<int>(random_bits(2, static_cast<std::uint64_t>(index)) % 7) - 3;
}

// Returns the address of an operand's byte under the hardware's swizzle: of its rows of 64 or 128 bytes,
// 16-byte pieces are exchanged by address bits 7 to 8 or 9.
int hardware_address(const Kernel& kernel, int byte) {
  return byte ^ ((byte >> 7 & (kernel.row_bytes() == 128 ? 7 : 3)) << 4);
}

// As the driver is told: pixels from (image, row, column) on, row after row, `rows_on` and `columns_on`
// behind.
struct Walk {
  const Kernel& kernel;
  int image, row, column;

  void next() {
    const ConvExtents& a = kernel.conv;
    if ((column += a.stride_w) <= a.w - 1 + kernel.corner_right()) return;
    column = -a.pad_left;
    if ((row += a.stride_h) <= a.h - 1 + kernel.corner_below()) return;
    row = -a.pad_top;
    ++image;
  }
};

// A group's channel as one of all; none behind its last.
int channel_of(const Kernel& kernel, int group, int channel) {
  return channel < kernel.depth() ? group * kernel.depth() + channel : kernel.conv.c;
}

// A stage of x in shared memory, by TMA's rules.
std::vector<int> loaded_input(const Kernel& kernel, int group, int first_pixel, int step) {
  const ConvExtents& a = kernel.conv;
  std::vector<int> stage(static_cast<std::size_t>(kernel.input_bytes() / 2));
  const Kernel::Pixel first = kernel.first_tap(first_pixel);
  Walk walk{kernel, first.image, first.row, first.column};
  for (int row = 0; row < kernel.tile_rows(); ++row) {
    for (int i = 0; i < kernel.channels; ++i) {
      const int channel = channel_of(kernel, group, kernel.first_channel(step) + i);
      int value = 0;
      if (kernel.pointwise()) {
        const int pixel = first_pixel + row;
        if (pixel < a.n * a.h * a.w && channel < a.c)
          value = input_at(a, pixel / (a.h * a.w), pixel / a.w % a.h, pixel % a.w, channel);
      } else {
        value = input_at(a, walk.image, walk.row + kernel.tap_row(step),
                         walk.column + kernel.tap_column(step), channel);
      }
      stage[static_cast<std::size_t>(hardware_address(kernel, row * kernel.row_bytes() + 2 * i) / 2)] = value;
    }
    walk.next();
  }
  return stage;
}

// Whatever load_anywhere() writes is the same.
void expect_loaded_alike(const Kernel& kernel, int group, int first_pixel, int step,
                         const std::vector<int>& stage) {
  for (int row = 0; row < kernel.tile_rows(); ++row)
    for (int i = 0; i < kernel.channels; ++i) {
      Kernel::Pixel at = kernel.first_tap(first_pixel + row);
      at.row += kernel.tap_row(step), at.column += kernel.tap_column(step);
      const int address = row * kernel.row_bytes() + 16 * kernel.exchanged(row, i / 8) + i % 8 * 2;
      ASSERT_EQ(stage[static_cast<std::size_t>(address / 2)],
                input_at(kernel.conv, at.image, at.row, at.column,
                         channel_of(kernel, group, kernel.first_channel(step) + i)));
    }
}

// Every output of the problem, stored once, by blocks that do what the kernel's do.
void expect_computes(const Kernel& kernel) {
  const ConvExtents& a = kernel.conv;
  ASSERT_TRUE(kernel.valid(kSmem) && kernel.can_walk());
  const long long halves = kernel.packed().prepared * 2;
  std::vector<int> packed(static_cast<std::size_t>(halves));
  std::vector<int> packed_times(static_cast<std::size_t>(a.weights()));
  for (long long i = 0; i < halves; ++i) {
    const long long source = kernel.source_of(i);
    if (source < 0) continue;
    packed[static_cast<std::size_t>(i)] = weight_at(source);
    ++packed_times[static_cast<std::size_t>(source)];
    ASSERT_EQ(kernel.half_of(source), i);
  }
  for (const int times : packed_times) ASSERT_EQ(times, 1);
  std::vector<int> y(static_cast<std::size_t>(kernel.pixels() * a.k)), stored(y.size());
  for (int tile = 0; tile < kernel.tiles(); ++tile)
    for (int rank = 0; rank < kernel.cluster_blocks(); ++rank) {
      const int pixel = kernel.first_pixel(tile, rank), filter = kernel.first_filter(tile);
      const int group = kernel.group(tile);
      const int from = kernel.split > 1 ? kernel.first_step(rank) : 0;
      const int to = kernel.split > 1 ? kernel.first_step(rank + 1) : kernel.steps();
      ASSERT_LT(from, to);
      for (int step = from; step < to; ++step) {
        const int brought_from = std::min(pixel, static_cast<int>(kernel.pixels()) - 1);
        const std::vector<int> input = loaded_input(kernel, group, brought_from, step);
        if (brought_from == pixel) expect_loaded_alike(kernel, group, pixel, step, input);
        const long long weights =
            (static_cast<long long>(tile % kernel.filter_blocks()) * kernel.steps() + step) *
            kernel.weight_bytes() / 2;
        for (int row = 0; row < kernel.tile_rows() && pixel + row < kernel.pixels(); ++row)
          for (int column = 0; column < kernel.filters && filter + column < kernel.end_filter(tile);
               ++column) {
            int sum = 0;
            for (int i = 0; i < kernel.products(step) * 16; ++i)
              sum += input[static_cast<std::size_t>(
                         hardware_address(kernel, row * kernel.row_bytes() + 2 * i) / 2)] *
                     packed[static_cast<std::size_t>(
                         weights + hardware_address(kernel, column * kernel.row_bytes() + 2 * i) / 2)];
            const auto at = static_cast<std::size_t>((pixel + row) * a.k + filter + column);
            y[at] += sum;
            stored[at] += step == kernel.steps() - 1;
          }
      }
    }
  for (const int times : stored) ASSERT_EQ(times, 1);
  for (int pixel = 0; pixel < kernel.pixels(); ++pixel)
    for (int filter = 0; filter < a.k; ++filter) {
      int want = 0;
      for (int channel = 0; channel < kernel.depth(); ++channel)
        for (int r = 0; r < a.r; ++r)
          for (int s = 0; s < a.s; ++s)
            want +=
                input_at(a, pixel / (a.p * a.q),
                         pixel / a.q % a.p * a.stride_h + r * a.dilation_h - a.pad_top,
                         pixel % a.q * a.stride_w + s * a.dilation_w - a.pad_left,
                         channel_of(kernel, filter / a.group_filters(), channel)) *
                weight_at(((static_cast<long long>(filter) * kernel.depth() + channel) * a.r + r) * a.s + s);
      ASSERT_EQ(y[static_cast<std::size_t>(pixel) * static_cast<std::size_t>(a.k) +
                  static_cast<std::size_t>(filter)],
                want)
          << "pixel " << pixel << ", filter " << filter;
    }
}

Kernel kernel_for(const std::string& text, Kernel choices) {
  choices.conv = cuda::extents_of(half(text));
  return choices;
}

TEST(ImplicitGemmHalfSm90, ComputesWhatItShould) {
  const Kernel small{.conv = {}, .consumers = 1, .row_blocks = 1, .filters = 16, .stages = 2};
  for (const char* text :
       {"mb2ic8ih7iw9oc5kh3ph1", "mb2ic8ih9iw8oc20kh1", "mb3ic16ih7iw9oc8kh1sh2",
        "mb1ic24ih11iw12oc9kh3sh2ph1", "mb2ic8ih12iw9oc7kh2kw5sh3sw2ph1pw3",
        "mb1ic8ih13iw10oc4kh3dh1dw2ph2pw3", "mb1ic8ih8oc6kh3sh2 pad_bottom=1 pad_right=1",
        "mb1ic8ih7iw10oc4kh4ph1pw2 pad_bottom=2 pad_right=3", "mb1ic8ih6oc4kh2 pad_bottom=5",
        "mb1ic8ih3oc4kh2ph5", "mb1ic8ih9oc4kh1ph2", "mb1ic8ih9oc4kh1 pad_right=2", "mb1ic8ih5oc4kh3sh7ph1",
        "mb70ic8ih1oc3kh3ph1", "mb1ic8ih1iw70oc8kh1kw5pw2ph0"}) {
    SCOPED_TRACE(text);
    expect_computes(kernel_for(text, small));
  }
}

TEST(ImplicitGemmHalfSm90, ComputesTheSameWhateverTheTile) {
  const char* const text = "mb2ic72ih11iw9oc70kh2kw3sh1sw2ph1";
  for (const Kernel& choices : {
           Kernel{.conv = {}, .consumers = 2, .row_blocks = 1, .filters = 64, .stages = 2},
           Kernel{.conv = {}, .consumers = 2, .row_blocks = 2, .filters = 48, .channels = 32, .stages = 2},
           Kernel{.conv = {}, .consumers = 2, .row_blocks = 1, .filters = 24, .stages = 2, .ping_pong = true},
           Kernel{.conv = {},
           .consumers = 2,
           .row_blocks = 2,
           .filters = 80,
           .stages = 2,
           .ping_pong = true,
           .cluster = 2},
           Kernel{.conv = {},
           .consumers = 3,
           .row_blocks = 1,
           .filters = 32,
           .channels = 32,
           .stages = 2,
           .cluster = 2},
           Kernel{.conv = {}, .consumers = 1, .row_blocks = 1, .filters = 128, .stages = 3, .split = 5},
           Kernel{.conv = {},
           .consumers = 2,
           .row_blocks = 1,
           .filters = 16,
           .channels = 32,
           .stages = 4,
           .split = 8},
       }) {
    const Kernel kernel = kernel_for(text, choices);
    SCOPED_TRACE(to_string(to_config(kernel)));
    expect_computes(kernel);
  }
}

// Whatever is behind a group's last channel is zero, and filters of a tile end with their group.
TEST(ImplicitGemmHalfSm90, ComputesGroups) {
  for (const Kernel& choices : {
           Kernel{.conv = {}, .consumers = 1, .filters = 16, .channels = 32, .stages = 2},
           Kernel{.conv = {}, .consumers = 2, .filters = 112, .stages = 2, .cluster = 2},
           Kernel{.conv = {}, .consumers = 1, .filters = 64, .stages = 3, .split = 4},
       })
    for (const char* text :
         {"mb2g2ic80ih6iw7oc10kh3ph1", "mb1g3ic120ih9oc201kh3sh2ph1", "mb1g2ic144ih7iw5oc140kh3dh1ph2",
          "mb3g2ic80ih5iw7oc24kh1", "mb2g2ic48ih4oc20kh2sh2"}) {
      Kernel kernel = kernel_for(text, choices);
      kernel.split = std::min(kernel.split, kernel.steps());
      SCOPED_TRACE(to_string(to_config(kernel)) + " " + text);
      expect_computes(kernel);
    }
}

// A place for each sum of a warp's 16 x 64, and no two threads at a bank: of 16 that write pairs, of 8 that
// read 16 bytes.
TEST(ImplicitGemmHalfSm90, GathersSumsWithoutConflicts) {
  std::set<int> places;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 64; ++column) {
      const int at = Kernel::staged_at(row, column);
      ASSERT_TRUE(at % 4 == 0 && at >= 0 && at < Kernel::kStagingBytes);
      places.insert(at);
      ASSERT_EQ(Kernel::staged_at(row, column / 4 * 4) + column % 4 * 4, at);
    }
  EXPECT_EQ(places.size(), 16u * 64);
  for (int j = 0; j < 8; ++j)
    for (int first = 0; first < 32; first += 16) {
      std::set<int> banks;
      for (int lane = first; lane < first + 16; ++lane)
        banks.insert(Kernel::staged_at(lane / 4, 8 * j + lane % 4 * 2) / 4 % 32);
      EXPECT_EQ(banks.size(), 16u);
    }
  for (int row = 0; row < 16; ++row)
    for (int half = 0; half < 2; ++half) {
      std::set<int> banks;
      for (int piece = 0; piece < 8; ++piece)
        banks.insert(Kernel::staged_at(row, 8 * piece + 4 * half) / 4 % 32);
      EXPECT_EQ(banks.size(), 8u);
    }
}

// Whatever swizzled operands ask for, whatever the config.
TEST(ImplicitGemmHalfSm90, AlignsItsRegions) {
  for (const char* text : {"mb8ic320ih32oc320kh3ph1", "mb64ic256ih14oc255kh1 residual=1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const Kernel kernel = kernel_of<Kernel>(problem, config);
      EXPECT_EQ(kernel.stage_bytes() % (8 * kernel.row_bytes()), 0) << to_string(config);
      EXPECT_EQ(kernel.input_bytes() % (8 * kernel.row_bytes()), 0) << to_string(config);
      EXPECT_EQ(kernel.smem().staging % 128, 0) << to_string(config);
      EXPECT_EQ(kernel.smem().full % 8, 0) << to_string(config);
      EXPECT_EQ(kernel.packed().bias_at() % 4, 0) << "biases are read by four";
      EXPECT_EQ(kernel.weight_bytes() / kernel.cluster % 16, 0) << to_string(config);
    }
  }
}

// ---- Problems that it takes
// ---------------------------------------------------------------------------------

TEST(ImplicitGemmHalfSm90, RefusesWithAReason) {
  const std::string shape = "mb2ic16ih32oc17kh3ph1", rest = " layout=nhwc dtype=bf16";
  expect_refusals(algorithm(),
                  {{shape + rest, "this is 8.0", {8, 0}},
                   {shape + rest, "this is 10.0", {10, 0}},
                   {shape + " layout=nhwc", "f16, bf16 tensors only"},
                   {shape + " layout=nhwc dtype=bf16:bf16:f32", "f16, bf16 tensors only"},
                   {shape + " layout=nhwc dtype=bf16:bf16:bf16:f16", "one type"},
                   {shape + " dtype=f32", "tensors"},
                   {shape + rest + " dir=bwd_w", "forward"},
                   {"mb2g2ic48ih32oc64kh3ph1" + rest, "not of 24 and 32"},
                   {"mb2g2ic64ih32oc48kh3ph1" + rest, "not of 32 and 24"},
                   {"mb2g2ic88ih32oc80kh3ph1" + rest, "in eights"},
                   {"mb2g2ic80ih32oc80kh3ph17" + rest, "of several groups or frames from 16 pixels"},
                   {"mb1ic16id40ih32iw32oc16kd3kh3kw3pd17ph1pw1" + rest, "frames from 16 pixels"},
                   {"mb1g2ic128id4ih32iw32oc128kd3kh3kw3pd1ph1pw1" + rest, "one group"},
                   {"mb2ic12ih32oc16kh3ph1" + rest, "multiples of 8"},
                   {"mb2ic16ih64oc16kh3sh9ph1" + rest, "strides up to 8"},
                   {"mb2ic16ih64oc16kh3ph129" + rest, "128 pixels"},
                   {"mb1ic16ih600oc16kh3dh127" + rest, "128 pixels"},
                   {"mb1048576ic8ih1024oc8kh1" + rest, "30 bits"}});
  for (const char* good :
       {"mb2ic16ih32oc17kh3ph1 layout=nhwc dtype=f16:f16:f16:f32 residual=1 act=silu rounding=eager",
        "mb1ic16ih600oc16kh3dh63ph64 layout=nhwc dtype=bf16", "mb1ic8ih1oc1kh1 layout=nhwc dtype=f16"})
    EXPECT_EQ(algorithm().supports(parse_problem(good), gpu()).reason(), "");
  expect_config_refusals(
      algorithm(), half("mb64ic128ih28oc128kh3ph1"),
      "consumers=2 row_blocks=1 filters=128 channels=64 stages=5 ping_pong=0 cluster=2 split=1",
      {"consumers=0", "consumers=4", "consumers=3 row_blocks=2", "row_blocks=2 filters=256", "filters=40",
       "channels=48", "stages=1", "stages=8", "consumers=1 ping_pong=1", "ping_pong=1 split=2 cluster=1",
       "split=2", "cluster=3", "cluster=1 split=9"});
}

TEST(ImplicitGemmHalfSm90, TakesEveryBodyCase) {
  for (ConvProblem problem : load_suite("body")) {
    problem.layout = Layout::nhwc;
    problem.dtype = DType::f16;
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    for (const Config& config : configs)
      EXPECT_TRUE(algorithm().accepts(problem, gpu(), config)) << to_string(config);
  }
}

// Chooses for every kind of block the config with the most sums, with the epilogue that takes most registers;
// and both types, and a problem that leaves nothing even.
TEST(ImplicitGemmHalfSm90, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  const ConvProblem problem = half("mb64ic128ih28oc256kh3ph1 act=gelu_erf residual=1");
  for (const char* config :
       {"consumers=2 row_blocks=1 filters=256 channels=64 stages=3 ping_pong=0 cluster=2 split=1",
        "consumers=2 row_blocks=2 filters=128 channels=64 stages=4 ping_pong=1 cluster=2 split=1",
        "consumers=3 row_blocks=1 filters=192 channels=64 stages=2 ping_pong=0 cluster=1 split=1",
        "consumers=1 row_blocks=2 filters=128 channels=32 stages=4 ping_pong=0 cluster=1 split=1",
        "consumers=2 row_blocks=1 filters=256 channels=64 stages=3 ping_pong=0 cluster=1 split=8"})
    kernels.push_back({problem, parse_config(config)});
  kernels.push_back({problem, kernels.front().config, {9, 0}, true});
  for (const char* text :
       {"mb1ic256ih14oc256kh3ph1 layout=nhwc dtype=f16 residual=1 rounding=eager",
        "mb2ic40ih33iw41oc13kh5kw3sh2sw3ph1pw2 layout=nhwc dtype=f16:f16:f16:f32 residual=1"}) {
    const ConvProblem other = parse_problem(text);
    kernels.push_back({other, algorithm().candidates(other, gpu()).front()});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(algorithm()), kernels);
}

}  // namespace
}  // namespace convtune::implicit_gemm_half_sm90_test
