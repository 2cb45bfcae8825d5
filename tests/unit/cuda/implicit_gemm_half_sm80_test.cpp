// The implicit GEMM in half precision for mma.sync without a GPU: what its threads copy, read, multiply and
// store, step by step on a host; banks of shared memory; refusals; and that what is offered compiles without
// spills.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::implicit_gemm_half_sm80_test {
namespace {

using Kernel = ImplicitGemmHalfSm80;
constexpr std::int64_t kSmem = 99 * 1024;

const Algorithm& algorithm() {
  return cuda::implicit_gemm_half_sm80();
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " layout=nhwc dtype=bf16");
}
Kernel kernel_for(const std::string& text, Kernel choices) {
  choices.conv = cuda::extents_of(half(text));
  return choices;
}

// ---- The kernel on a host: integers in place of halves, so that every difference shows ------------

int number(std::uint64_t seed, long long index) {
  return static_cast<int>(random_bits(seed, static_cast<std::uint64_t>(index)) % 7) - 3;
}
int& at(std::vector<int>& values, long long index) {
  return values.at(static_cast<std::size_t>(index));
}

// Returns the offset at which a thread writes its piece of row `i` of those that it copies (load.cuh).
int copied_to(const Kernel& kernel, int thread, int i) {
  const int first = thread / kernel.pieces(), piece = thread % kernel.pieces();
  return first * kernel.row_bytes() + 16 * kernel.exchanged(first, piece) +
         i * kernel.copied_rows() * kernel.row_bytes();
}
// Returns the offset at which a lane of warp `warp_m` reads a row of operand `m` (Operands) of a step's tap.
int read_from(const Kernel& kernel, int warp_m, int m, int product, int lane, int step = 0) {
  const int row = warp_m * kernel.warp_rows() + lane % 16 +
                  (kernel.window ? kernel.tap_positions(step % kernel.taps()) : 0);
  const int place = row * kernel.row_bytes() + 16 * kernel.exchanged(row, lane / 16);
  return (place ^ (32 * product)) + m * 16 * kernel.row_bytes();
}

// A stage of x, -100 where nobody has written.
std::vector<int> loaded(const Kernel& kernel, int tile, int step) {
  const ConvExtents& a = kernel.conv;
  std::vector<int> stage(static_cast<std::size_t>(kernel.input_bytes() / 2), -100);
  for (int thread = 0; thread < kernel.threads(); ++thread)
    for (int i = 0; i < kernel.row_copies(); ++i) {
      const int position = kernel.first_position(tile) + thread / kernel.pieces() + i * kernel.copied_rows();
      Kernel::Term term = kernel.term(step, thread % kernel.pieces());
      if (kernel.window) term.tap = 0;
      const Kernel::Pixel first = kernel.first_tap(position);
      const int row = first.row + kernel.tap_row(term.tap),
                column = first.column + kernel.tap_column(term.tap);
      const bool inside = (kernel.window || position < kernel.positions()) && term.tap < kernel.taps() &&
                          kernel.is_inside({first.image, row, column});
      const int group = kernel.group(tile);
      const unsigned from = kernel.piece_at(first) + static_cast<unsigned>(group * kernel.group_pieces()) +
                            kernel.piece_at({0, kernel.tap_row(term.tap), kernel.tap_column(term.tap)}) +
                            static_cast<unsigned>(term.piece);
      for (int half = 0; half < 8; ++half) {
        int& to = at(stage, copied_to(kernel, thread, i) / 2 + half);
        EXPECT_EQ(to, -100) << "written twice";
        to = inside ? number(1, 8LL * from + half) : 0;
        if (inside) {
          EXPECT_EQ(
              8LL * from + half,
              a.input_offset(first.image, group * a.group_channels() + 8 * term.piece + half, row, column));
        }
      }
    }
  return stage;
}

// Every output, stored once, by threads that do what the kernel's do.
void expect_computes(const Kernel& kernel) {
  const ConvExtents& a = kernel.conv;
  ASSERT_TRUE(kernel.valid(kSmem));
  std::vector<int> packed(static_cast<std::size_t>(kernel.packed().prepared * 2));
  std::vector<int> times(static_cast<std::size_t>(a.weights()));
  for (long long i = 0; i < std::ssize(packed); ++i)
    if (const long long source = kernel.source_of(i); source >= 0) {
      at(packed, i) = number(2, source);
      ++at(times, source);
    }
  for (const int one : times) ASSERT_EQ(one, 1);
  std::vector<int> y(static_cast<std::size_t>(kernel.pixels() * a.k)), stored(y.size());
  for (int tile = 0; tile < kernel.tiles(); ++tile)
    for (int rank = 0; rank < kernel.split; ++rank) {
      ASSERT_LT(kernel.first_step(rank), kernel.first_step(rank + 1));
      for (int step = kernel.first_step(rank); step < kernel.first_step(rank + 1); ++step) {
        std::vector<int> stage = loaded(kernel, tile, step);
        const long long weights =
            (1LL * tile % kernel.filter_blocks() * kernel.steps() + step) * kernel.weight_bytes() / 2;
        for (int warp = 0; warp < kernel.threads() / 32; ++warp)
          for (int product = 0; product < kernel.products(); ++product)
            for (int m = 0; m < kernel.tiles_m(); ++m)
              for (int n = 0; n < kernel.tiles_n(); ++n)
                for (int element = 0; element < 16 * 8; ++element) {
                  const int row = element / 8, column = element % 8;
                  const int warp_m = warp / kernel.warps_n, warp_n = warp % kernel.warps_n;
                  // As mma leaves it in a thread, and that stores it.
                  const int lane = row % 8 * 4 + column / 2;
                  const int pixel =
                      kernel.pixel_at(kernel.first_position(tile) + warp_m * kernel.warp_rows() + lane / 4 +
                                      16 * m + row / 8 * 8);
                  const int filter = kernel.first_filter(tile) + warp_n * kernel.warp_filters() +
                                     lane % 4 * 8 + n / 4 * 32 + n % 4 * 2 + column % 2;
                  if (pixel < 0 || filter >= kernel.end_filter(tile)) continue;
                  int sum = 0;
                  for (int k = 0; k < 16; ++k) {
                    const int x =
                        at(stage, read_from(kernel, warp_m, m, product, row + k / 8 * 16, step) / 2 + k % 8);
                    const int thread = column * 4 + k % 8 / 2, word = n % 2 * 2 + k / 8;
                    const int w = warp_n * (kernel.tiles_n() / 2 * 512) + 16 * thread +
                                  (product * (kernel.filters / 16) + n / 2) * 512 + 4 * word;
                    sum += x * at(packed, weights + w / 2 + k % 2);
                  }
                  at(y, 1LL * pixel * a.k + filter) += sum;
                  at(stored, 1LL * pixel * a.k + filter) += step == kernel.steps() - 1 && product == 0;
                }
      }
    }
  for (const int one : stored) ASSERT_EQ(one, 1);
  for (int pixel = 0; pixel < kernel.pixels(); ++pixel)
    for (int filter = 0; filter < a.k; ++filter) {
      int want = 0;
      const int group = filter / a.group_filters();
      for (int channel = 0; channel < a.group_channels(); ++channel)
        for (int tap = 0; tap < a.r * a.s; ++tap) {
          const int row = pixel / a.q % a.p * a.stride_h + tap / a.s * a.dilation_h - a.pad_top;
          const int column = pixel % a.q * a.stride_w + tap % a.s * a.dilation_w - a.pad_left;
          if (row >= 0 && row < a.h && column >= 0 && column < a.w)
            want += number(1, a.input_offset(pixel / (a.p * a.q), group * a.group_channels() + channel, row,
                                             column)) *
                    number(2, (1LL * filter * a.group_channels() + channel) * a.r * a.s + tap);
        }
      ASSERT_EQ(at(y, 1LL * pixel * a.k + filter), want) << "pixel " << pixel << ", filter " << filter;
    }
}

TEST(ImplicitGemmHalfSm80, ComputesWhatItShould) {
  const Kernel small{.conv = {}, .rows = 32, .filters = 32, .warps_m = 2, .warps_n = 1, .stages = 3};
  for (const char* text :
       {"mb2ic8ih7iw9oc5kh3ph1", "mb2ic8ih9iw8oc20kh1", "mb3ic16ih7iw9oc8kh1sh2",
        "mb1ic24ih11iw12oc9kh3sh2ph1", "mb2ic8ih12iw9oc7kh2kw5sh3sw2ph1pw3",
        "mb1ic8ih13iw10oc4kh3dh1dw2ph2pw3", "mb1ic8ih8oc6kh3sh2 pad_bottom=1 pad_right=1",
        "mb1ic8ih6oc4kh2 pad_bottom=5", "mb1ic8ih3oc4kh2ph5", "mb1ic8ih9oc4kh1 pad_right=2",
        "mb1ic64ih5oc40kh3sh7ph1", "mb70ic8ih1oc3kh3ph1", "mb1ic32ih1iw70oc8kh1kw5pw2ph0"}) {
    SCOPED_TRACE(text);
    expect_computes(kernel_for(text, small));
  }
}

TEST(ImplicitGemmHalfSm80, ComputesTheSameWhateverTheTile) {
  for (const char* text : {"mb2ic72ih7iw9oc70kh2kw3sh1sw2ph1", "mb1ic128ih9oc40kh3ph1"})
    for (const Kernel& choices : {
             Kernel{.conv = {}, .rows = 128, .filters = 128, .warps_m = 2, .warps_n = 2},
             Kernel{.conv = {}, .rows = 64, .filters = 64, .warps_m = 2, .warps_n = 2, .channels = 64},
             Kernel{.conv = {}, .rows = 128, .filters = 32, .warps_m = 4, .warps_n = 1, .channels = 64},
             Kernel{.conv = {}, .rows = 256, .filters = 64, .warps_m = 4, .warps_n = 2},
             Kernel{.conv = {},
             .rows = 64,
             .filters = 96,
             .warps_m = 2,
             .warps_n = 1,
             .channels = 64,
             .split = 4},
             Kernel{.conv = {}, .rows = 32, .filters = 256, .warps_m = 1, .warps_n = 4, .split = 8},
         }) {
      const Kernel kernel = kernel_for(text, choices);
      SCOPED_TRACE(std::string(text) + " " + to_string(to_config(kernel)));
      expect_computes(kernel);
    }
}

// Pieces of a group's channels alone, and filters of a tile that end with their group.
TEST(ImplicitGemmHalfSm80, ComputesGroups) {
  for (const Kernel& choices : {
           Kernel{.conv = {}, .rows = 32, .filters = 32, .warps_m = 2, .warps_n = 1},
           Kernel{
               .conv = {}, .rows = 64, .filters = 64, .warps_m = 2, .warps_n = 2, .channels = 64, .split = 2},
       })
    for (const char* text : {"mb2g2ic80ih6iw7oc10kh3ph1", "mb1g3ic120ih9oc201kh3sh2ph1",
                             "mb1g2ic128ih7iw5oc140kh3dh1ph2", "mb3g2ic160ih5iw7oc24kh1"}) {
      const Kernel kernel = kernel_for(text, choices);
      SCOPED_TRACE(std::string(text) + " " + to_string(to_config(kernel)));
      expect_computes(kernel);
    }
  expect_computes(
      kernel_for("mb2g2ic64ih7iw9oc80kh3ph1",
                 {.conv = {}, .rows = 32, .filters = 32, .warps_m = 2, .warps_n = 1, .window = true}));
}

// Taps that are read from one window: whatever the padding, holes and images.
TEST(ImplicitGemmHalfSm80, ReadsTapsFromAWindow) {
  const Kernel small{.conv = {}, .rows = 32, .filters = 32, .warps_m = 2, .warps_n = 1, .window = true};
  for (const char* text :
       {"mb2ic32ih7iw9oc5kh3ph1", "mb3ic32ih5iw4oc9kh3ph2", "mb1ic64ih9iw7oc6kh5ph2",
        "mb2ic32ih8iw9oc4kh2kw3", "mb2ic32ih9iw8oc4kh3ph1dh1dw2pw4",
        "mb1ic32ih6oc4kh3 pad_bottom=5 pad_right=3", "mb2ic32ih6oc4kh3ph4pw1 pad_bottom=0 pad_right=0",
        "mb1ic96ih4oc40kh2ph1", "mb4ic32ih1iw9oc8kh1kw3pw1ph0"}) {
    SCOPED_TRACE(text);
    expect_computes(kernel_for(text, small));
  }
  const Kernel large{
      .conv = {}, .rows = 128, .filters = 64, .warps_m = 2, .warps_n = 2, .channels = 64, .window = true};
  expect_computes(kernel_for("mb2ic128ih9iw11oc70kh3ph1", large));
}

// Eight lanes of a matrix load, and eight threads that copy, each meet all banks.
TEST(ImplicitGemmHalfSm80, MeetsAllBanks) {
  const auto banks = [](const auto& address) {
    std::set<int> pieces;
    for (int i = 0; i < 8; ++i) pieces.insert(address(i) % 128 / 16);
    return pieces.size();
  };
  for (const auto& [channels, window] : {std::pair{32, false}, {64, false}, {32, true}, {64, true}}) {
    const Kernel kernel =
        kernel_for("mb1ic64ih14oc64kh3ph1", {.conv = {}, .channels = channels, .window = window});
    for (int product = 0; product < kernel.products(); ++product)
      for (int first = 0; first < 32; first += 8)
        for (int step = 0; step < kernel.taps(); ++step)
          EXPECT_EQ(banks([&](int i) { return read_from(kernel, 1, 2, product, first + i, step); }), 8u);
    for (int first = 0; first < kernel.threads(); first += 8)
      EXPECT_EQ(banks([&](int i) { return copied_to(kernel, first + i, 1); }), 8u);
  }
}

// Words of sums that blocks share, and biases that are read by eight.
TEST(ImplicitGemmHalfSm80, SharesAndAligns) {
  Kernel kernel = kernel_for("mb1ic256ih14oc250kh3ph1", {.conv = {}, .rows = 64, .filters = 64, .split = 4});
  EXPECT_EQ(kernel.shared_words(), 4LL * 4 * 4 * 64 * 64);
  EXPECT_EQ(kernel.packed().bias_at() % 4, 0);
  kernel.split = 1;
  EXPECT_EQ(kernel.shared_words(), 0);
}

// ---- Problems that it takes
// ---------------------------------------------------------------------------------

TEST(ImplicitGemmHalfSm80, RefusesWithAReason) {
  const std::string shape = "mb2ic16ih32oc17kh3ph1", rest = " layout=nhwc dtype=bf16";
  expect_refusals(algorithm(), {{shape + rest, "this is 7.5", {7, 5}},
                                {shape + " layout=nhwc", "f16, bf16"},
                                {shape + " layout=nhwc dtype=bf16:bf16:f32", "f16, bf16"},
                                {shape + rest + " dir=bwd_w", "forward"},
                                {"mb2g2ic48ih32oc64kh3ph1" + rest, "not of 24 and 32"},
                                {"mb2g2ic88ih32oc80kh3ph1" + rest, "in eights"},
                                {"mb2ic12ih32oc16kh3ph1" + rest, "multiples of 8"},
                                {"mb1048576ic8ih1024oc8kh1" + rest, "30 bits"}});
  for (const char* good :
       {"mb2ic16ih32oc17kh3ph1 layout=nhwc dtype=f16:f16:f16:f32 residual=1 act=silu rounding=eager",
        "mb1ic16ih600oc16kh3dh127ph200 layout=nhwc dtype=bf16", "mb1ic8ih1oc1kh1 layout=nhwc dtype=f16"})
    for (const ComputeCapability capability : {ComputeCapability{8, 0}, {8, 9}, {9, 0}, {12, 0}})
      EXPECT_EQ(algorithm().supports(parse_problem(good), gpu(capability)).reason(), "");
  expect_config_refusals(
      algorithm(), half("mb64ic128ih28oc128kh3ph1"),
      "rows=128 filters=128 warps_m=2 warps_n=2 channels=32 stages=4 blocks=2 split=1 window=0",
      {"rows=144", "filters=96", "warps_m=3", "warps_m=1 warps_n=1", "warps_m=8 warps_n=4", "channels=48",
       "stages=2", "stages=9", "split=2 window=1", "blocks=3", "blocks=0", "split=17", "split=3",
       "channels=64 stages=8", "filters=256"});
}

TEST(ImplicitGemmHalfSm80, TakesEveryBodyCase) {
  for (const ComputeCapability capability : {ComputeCapability{8, 0}, {8, 9}, {9, 0}})
    for (ConvProblem problem : load_suite("body")) {
      problem.layout = Layout::nhwc;
      problem.dtype = DType::f16;
      const std::vector<Config> configs = algorithm().candidates(problem, gpu(capability));
      ASSERT_FALSE(configs.empty()) << to_string(problem);
      for (const Config& config : configs)
        EXPECT_TRUE(algorithm().accepts(problem, gpu(capability), config)) << to_string(config);
    }
}

// The most sums with the epilogue that takes most registers, where registers are fewest; sums that are
// shared; and a problem that leaves nothing even.
TEST(ImplicitGemmHalfSm80, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  const ConvProblem problem = half("mb64ic128ih28oc256kh3ph1 act=gelu_erf residual=1");
  for (const char* config :
       {"rows=128 filters=128 warps_m=2 warps_n=2 channels=32 stages=3 blocks=2 split=1 window=0",
        "rows=128 filters=256 warps_m=2 warps_n=4 channels=32 stages=3 blocks=1 split=1 window=0",
        "rows=64 filters=128 warps_m=2 warps_n=2 channels=64 stages=3 blocks=1 split=4 window=0",
        "rows=128 filters=128 warps_m=2 warps_n=2 channels=32 stages=3 blocks=1 split=1 window=1",
        "rows=64 filters=64 warps_m=2 warps_n=2 channels=32 stages=3 blocks=4 split=1 window=0"})
    for (const ComputeCapability capability : {ComputeCapability{8, 9}, {9, 0}})
      kernels.push_back({problem, parse_config(config), capability});
  kernels.push_back({problem, kernels.front().config, {8, 0}, true});
  const ConvProblem uneven =
      parse_problem("mb2ic40ih33iw41oc13kh5kw3sh2sw3ph1pw2 layout=nhwc dtype=f16:f16:f16:f32 residual=1");
  kernels.push_back({uneven, algorithm().candidates(uneven, gpu()).front()});
  expect_compiles_as_planned(*cuda::kernel_algorithm(algorithm()), kernels);
}

}  // namespace
}  // namespace convtune::implicit_gemm_half_sm80_test
