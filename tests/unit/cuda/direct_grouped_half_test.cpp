// The kernel for few channels a group in half precision without a GPU: its geometry, its refusals, and its
// tightest configs compiled.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cuda/algorithms/direct_grouped_half/config.h"
#include "kernel_expectations.h"
#include "sums_by_definition.h"

namespace convtune::direct_grouped_half_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem, ComputeCapability capability = {9, 0}) {
  return cuda::direct_grouped_half().candidates(problem, gpu(capability));
}

// A block's shared memory as the kernel fills it: where each number of x is, by byte.
std::map<int, long long> filled(const DirectGroupedHalf& a, int chunk, int band, int side) {
  std::map<int, long long> numbers;
  for (int row = 0; row < a.input_rows(); ++row)
    for (int column = 0; column < a.input_columns(); ++column)
      for (int piece = 0; piece < a.pieces(); ++piece)
        for (int i = 0; i < 8; ++i) {
          const int at = 16 * piece + row * a.row_bytes() + a.column_offset(column) + 2 * i;
          const int h = a.first_row(band) + row, w = a.first_column(side) + column;
          const int channel = 8 * (a.chunk_piece(chunk) + piece) + i;
          const bool inside =
              h >= 0 && h < a.conv.h && w >= 0 && w < a.conv.w && channel >= 0 && channel < a.conv.c;
          EXPECT_TRUE(numbers.emplace(at, inside ? a.conv.input_offset(0, channel, h, w) : -1).second);
          EXPECT_LT(a.smem().input + at + 1, a.smem_bytes());
        }
  return numbers;
}

// The products of one output as the kernel has them: couples of a chain, and words of weights.
long long sum_by_geometry(const DirectGroupedHalf& a, const std::map<int, long long>& smem, int p, int q,
                          int filter) {
  const ConvExtents& of = a.conv;
  const int row = p % a.tile_rows(), column = q % a.tile_columns(), eight = filter / 8;
  const int half = row % a.rows / a.depth(), output = row % a.depth();  // for the operand, and m
  const int chain = output / a.chain_outputs(), m = output % a.chain_outputs();
  const int corner = row / a.rows * a.rows * of.stride_h * a.row_bytes() + column * a.pixel_bytes();
  EXPECT_TRUE(a.first_piece(eight) >= 0 && a.first_piece(eight) + a.span() <= a.pieces());
  long long sum = 0;
  for (int piece = 0; piece < a.span(); ++piece)
    for (int s = 0; s < of.s; ++s)
      for (int r = 0; r < of.r; ++r)
        for (int i = 0; i < 8; ++i) {
          const int couple = m + r;
          EXPECT_LT(couple, a.couples());
          // Two filter rows at once where the first is at an even couple, else alone.
          const int first = r - couple % 2;
          const bool alone = first < 0 || first + 1 >= of.r;
          const int word = alone ? a.single_word(r) : 2 * (first / a.pair_step()) + r - first;
          if (!alone) {
            EXPECT_EQ(first % a.pair_step(), 0);
          }
          EXPECT_LT(word, a.column_words());
          const long long at_word = 1LL * eight * a.eight_words() + piece * a.piece_words() +
                                    ((s * a.pairs() + word / 2) * 32 + filter % 8 * 4 + i / 2) * 2 + word % 2;
          const long long weight = a.source_of(2 * at_word + i % 2);
          const int window_row =
              chain * of.stride_h + couple * of.dilation_h + half * a.depth() * of.stride_h;
          EXPECT_LT(window_row, a.window_rows());
          const auto found =
              smem.find(16 * (a.first_piece(eight) + piece) + corner + window_row * a.row_bytes() +
                        a.column_offset(s * of.dilation_w) + 2 * i);
          EXPECT_TRUE(found != smem.end()) << "a product of what was not filled";
          if (found != smem.end() && found->second >= 0 && weight >= 0)
            sum += 1LL * number(found->second) * number(weight + 3);
        }
  return sum;
}

TEST(DirectGroupedHalf, FindsEveryProductInItsSharedMemory) {
  for (const char* text :
       {"g8mb1ic32ih9iw11oc32kh3ph1", "g4mb1ic32ih9oc32kh3sh2ph1", "g3mb1ic72ih6iw10oc72kh3ph2dh1",
        "g2mb1ic112ih6oc112kh3ph1", "g12mb1ic12ih11oc24kh5ph2", "g5mb1ic15ih7oc35kh3kw2sh1sw3ph1",
        "g4mb1ic16ih9oc128kh1", "g7mb1ic84ih5iw9oc84kh3ph1", "g24mb1ic24ih10oc48kh7ph3",
        "g2mb1ic38ih6iw9oc10kh2kw4sh2sw1dh0dw1", "g16mb1ic32ih6oc64kh3ph1", "g3mb1ic36ih5oc36kh3"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 6)) {
      const auto a = kernel_of<DirectGroupedHalf>(problem, config);
      for (int chunk = 0; chunk < a.chunks(); ++chunk)
        for (int band = 0; band < a.bands(); ++band)
          for (int side = 0; side < a.sides(); ++side) {
            const std::map<int, long long> smem = filled(a, chunk, band, side);
            for (int p = band * a.tile_rows(); p < std::min((band + 1) * a.tile_rows(), a.conv.p); ++p)
              for (int q = side * a.tile_columns(); q < std::min((side + 1) * a.tile_columns(), a.conv.q);
                   ++q)
                for (int k = chunk * a.filters; k < std::min((chunk + 1) * a.filters, a.conv.k); ++k)
                  ASSERT_EQ(sum_by_geometry(a, smem, p, q, k), sum_by_definition(a.conv, p, q, k))
                      << text << " with " << to_string(config) << " at " << p << ", " << q << ", " << k;
          }
    }
  }
}

TEST(DirectGroupedHalf, CountsThePiecesThatFiltersMeet) {
  const auto kernel = [](const char* text, int filters, int eights) {
    DirectGroupedHalf a{.conv =
                            cuda::extents_of(parse_problem(std::string(text) + " layout=nhwc dtype=f16"))};
    a.filters = filters, a.eights = eights;
    return a;
  };
  const DirectGroupedHalf fours = kernel("g32mb1ic128ih56oc128kh3ph1", 64, 2);
  EXPECT_EQ(fours.span(), 1);
  EXPECT_EQ(fours.pieces(), 8);
  EXPECT_FALSE(fours.shared());
  EXPECT_EQ(fours.couples(), fours.depth() + 2);
  EXPECT_TRUE(fours.kept());
  const DirectGroupedHalf wide = kernel("g8mb1ic448ih28oc448kh3ph1", 56, 7);
  EXPECT_EQ(wide.span(), 7);
  EXPECT_EQ(wide.pieces(), 7);
  EXPECT_TRUE(wide.shared());
  EXPECT_FALSE(wide.kept());
  const DirectGroupedHalf strided = kernel("g8mb1ic128ih28oc128kh3sh2ph1", 16, 2);
  EXPECT_FALSE(strided.one_chain());
  EXPECT_EQ(strided.couples(), 3);
}

TEST(DirectGroupedHalf, TakesGroupsEverywhere) {
  for (const char* type : {"f16", "bf16"})
    for (const ComputeCapability capability : kCapabilities)
      for (const char* text : {"mb2g32ic128ih32oc128kh3ph1", "mb2g8ic448ih28oc448kh3sh2ph1",
                               "mb1g5ic15ih7oc35kh3ph1", "mb1g96ic96ih14oc192kh7ph3"})
        EXPECT_FALSE(
            candidates(parse_problem(std::string(text) + " layout=nhwc dtype=" + type), capability).empty())
            << text;
}

TEST(DirectGroupedHalf, RefusesWithAReason) {
  expect_refusals(cuda::direct_grouped_half(),
                  {{"mb2g8ic32ih32oc32kh3ph1", "tensors only"},
                   {"mb2g8ic32ih32oc32kh3ph1 layout=nhwc", "f32"},
                   {"mb2ic32ih32oc32kh3ph1 layout=nhwc dtype=bf16", "several groups"},
                   {"mb2g32ic32ih32oc32kh3ph1 layout=nhwc dtype=bf16", "one filter a channel"},
                   {"mb2g2ic512ih32oc32kh3ph1 layout=nhwc dtype=bf16", "128 channels"},
                   {"mb2g8ic32ih32oc32kh9ph4 layout=nhwc dtype=bf16", "81 taps"},
                   {"mb2g8ic32ih99oc32kh3dh40 layout=nhwc dtype=bf16", "window"},
                   {"mb2g8ic32ih32oc32kh3ph1 layout=nhwc dtype=bf16", "8.0", {7, 5}}});
  const ConvProblem problem = parse_problem("g32mb64ic128ih56oc128kh3ph1 layout=nhwc dtype=bf16");
  expect_config_refusals(
      cuda::direct_grouped_half(), problem,
      "rows=4 down=2 across=7 filters=64 eights=2 warps=8 stages=1 blocks=2",
      {"rows=3", "rows=0", "down=0", "filters=40", "eights=3", "warps=6", "blocks=9", "stages=3",
       "warps=32 down=1 across=1",                 // strips
       "filters=256 down=14 warps=16 blocks=1"});  // shared memory
}

TEST(DirectGroupedHalf, CompilesWithTheLeastToSpare) {
  expect_tightest_compile<DirectGroupedHalf>(
      *cuda::kernel_algorithm(cuda::direct_grouped_half()),
      {"g32mb64ic128ih56oc128kh3ph1 dtype=bf16 act=relu layout=nhwc",
       "g8mb32ic448ih28oc448kh3ph1 dtype=f16 layout=nhwc",
       "g16mb8ic512ih28oc512kh3sh2ph1 dtype=bf16 residual=1 act=silu layout=nhwc",
       "g96mb64ic96ih56oc192kh7ph3 dtype=bf16 act=gelu_erf layout=nhwc",
       "g17mb2ic17ih14oc34kh5sh2ph2dh1 dtype=f16 act=silu residual=1 rounding=eager layout=nhwc"});
}

}  // namespace
}  // namespace convtune::direct_grouped_half_test
