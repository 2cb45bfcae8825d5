// The kernel for few filters in half precision without a GPU: its geometry, its refusals, and its tightest
// configs compiled.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cuda/algorithms/direct_few_half/config.h"
#include "kernel_expectations.h"
#include "sums_by_definition.h"

namespace convtune::direct_few_half_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem, ComputeCapability capability = {9, 0}) {
  return cuda::direct_few_half().candidates(problem, gpu(capability));
}

// A turn's pixels as the kernel lays them: where each number of x is, by byte; -1 where a zero is.
std::map<int, long long> filled(const DirectFewHalf& a, int z, int turn, int band, int side) {
  std::map<int, long long> numbers;
  const int d = z * a.conv.stride_d - a.conv.pad_front + turn / a.chunks() * a.conv.dilation_d;
  for (int row = 0; row < a.input_rows(); ++row)
    for (int column = 0; column < a.input_columns(); ++column)
      for (int piece = 0; piece < a.pieces(); ++piece)
        for (int i = 0; i < 8; ++i) {
          const int at = row * a.row_bytes() + a.piece_offset(column, piece) + 2 * i;
          const int h = a.first_row(band) + row, w = a.first_column(side) + column;
          const int channel = turn % a.chunks() * a.channels + 8 * piece + i;
          const bool inside = d >= 0 && d < a.conv.d && h >= 0 && h < a.conv.h && w >= 0 && w < a.conv.w &&
                              channel < a.conv.c;
          EXPECT_TRUE(numbers.emplace(at, inside ? a.conv.input_offset(0, channel, d, h, w) : -1).second);
          EXPECT_LT(at + 1, a.input_bytes());
        }
  return numbers;
}

// The products of one output with a turn's channels, as the kernel has them.
long long sum_by_geometry(const DirectFewHalf& a, const std::map<int, long long>& smem, int turn, int p,
                          int q, int filter) {
  const ConvExtents& of = a.conv;
  const int row = p % a.tile_rows(), warp = row / a.rows, column = q % a.tile_columns() * of.stride_w;
  long long sum = 0;
  for (int step = 0; step < a.steps(); ++step)
    for (int r = 0; r < of.r; ++r)
      for (int s = 0; s < of.s; ++s)
        for (int c = 0; c < 16; ++c) {
          const int pixel = column + s * of.dilation_w, of_product = s * of.k + filter;
          EXPECT_LT(pixel, 16 * a.sixteens * a.across);
          const int window_row = row % a.rows * of.stride_h + r * of.dilation_h;
          EXPECT_TRUE(window_row < a.window_rows() && a.is_met(window_row));
          const auto found = smem.find((warp * a.rows * of.stride_h + window_row) * a.row_bytes() +
                                       a.piece_offset(pixel, 2 * step + c / 8) + 2 * (c % 8));
          const int lane = of_product % 8 * 4 + c % 8 / 2;
          const long long weight =
              a.source_of(1LL * turn * (a.weight_bytes() / 2) + step * (a.step_bytes() / 2) +
                          ((r * a.eights() + of_product / 8) * 32 + lane) * 4 + c / 8 * 2 + c % 2);
          EXPECT_TRUE(found != smem.end()) << "a product of what was not filled";
          if (found != smem.end() && found->second >= 0 && weight >= 0)
            sum += 1LL * number(found->second) * number(weight + 3);
        }
  return sum;
}

TEST(DirectFewHalf, FindsEveryProductInItsSharedMemory) {
  for (const char* text :
       {"mb1ic32ih9iw37oc3kh7ph3", "mb1ic40ih11iw20oc1kh3ph1", "mb1ic20ih9iw19oc4kh3kw5sh2sw3ph1pw2",
        "mb1ic8ih12iw40oc8kh1", "mb1ic130ih5iw18oc2kh3ph2dh1", "mb1ic3ih10iw33oc3kh9ph4",
        "mb1ic16ih1iw70oc1kh1kw7pw3", "mb1ic24id3ih6iw11oc2kd3kh3kw3pd1ph1pw1",
        "mb1ic40id5ih5iw9oc1kd2kh3kw2sd2sh1sw1dd1dh0dw0pd1ph1pw0"}) {
    const ConvProblem problem = parse_problem(std::string(text) + " layout=nhwc dtype=bf16");
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 6)) {
      const auto a = kernel_of<DirectFewHalf>(problem, config);
      for (int tile = 0; tile < a.conv.z * a.bands() * a.sides(); ++tile) {
        const int z = tile / a.sides() / a.bands(), band = tile / a.sides() % a.bands(),
                  side = tile % a.sides();
        std::vector<std::map<int, long long>> turns;
        for (int turn = 0; turn < a.turns(); ++turn) turns.push_back(filled(a, z, turn, band, side));
        for (int p = band * a.tile_rows(); p < std::min((band + 1) * a.tile_rows(), a.conv.p); ++p)
          for (int q = side * a.tile_columns(); q < std::min((side + 1) * a.tile_columns(), a.conv.q); ++q)
            for (int k = 0; k < a.conv.k; ++k) {
              long long sum = 0;
              for (int turn = 0; turn < a.turns(); ++turn)
                sum += sum_by_geometry(a, turns[turn], turn, p, q, k);
              ASSERT_EQ(sum, sum_by_definition(a.conv, p, q, k, 0, z))
                  << text << " with " << to_string(config) << " at " << z << ", " << p << ", " << q << ", "
                  << k;
            }
      }
    }
  }
}

TEST(DirectFewHalf, TakesFewFiltersEverywhere) {
  for (const char* type : {"f16", "bf16"})
    for (const ComputeCapability capability : kCapabilities)
      for (const char* text : {"mb1ic64ih262oc3kh7", "mb1ic128ih512oc3kh3ph1", "mb8ic64ih256oc1kh7ph3",
                               "mb1ic32id8ih64iw64oc2kd3kh3kw3pd1ph1pw1", "mb2ic64ih100oc8kh9ph4"})
        EXPECT_FALSE(
            candidates(parse_problem(std::string(text) + " layout=nhwc dtype=" + type), capability).empty())
            << text;
}

// Long rows of a filter leave a block few registers a warp, or need several sixteens of each.
TEST(DirectFewHalf, RefusesNoProblemThatHasAConfig) {
  const long long smem = target_of(gpu()).smem_per_block;
  Picker pick(1);
  int valid = 0, others = 0;
  for (int i = 0; i < 4000; ++i) {
    ConvExtents conv{.c = static_cast<int>(pick(1, 200)), .k = static_cast<int>(pick(1, 8))};
    conv.r = static_cast<int>(pick(1, 11)), conv.s = static_cast<int>(pick(1, 11));
    conv.stride_h = static_cast<int>(pick(1, 4)), conv.stride_w = static_cast<int>(pick(1, 4));
    if (pick(0, 2) == 0) conv.dilation_h = static_cast<int>(pick(1, 30));
    if (pick(0, 2) == 0) conv.dilation_w = static_cast<int>(pick(1, 90));
    conv.p = static_cast<int>(pick(1, 60)), conv.q = static_cast<int>(pick(1, 400));
    conv.h = (conv.p - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1;
    conv.w = (conv.q - 1) * conv.stride_w + (conv.s - 1) * conv.dilation_w + 1;
    conv.nhwc = true;
    if (DirectFewHalf::least(conv, smem).valid(smem)) {
      ++valid;
      continue;
    }
    ++others;
    DirectFewHalf a{.conv = conv};
    for (a.rows = 1; a.rows <= 2; ++a.rows)
      for (a.sixteens = 1; a.sixteens <= DirectFewHalf::kMostSixteens; ++a.sixteens)
        for (a.across = 1; a.across <= DirectFewHalf::kMostWarps; ++a.across)
          for (const int channels : {16, 32, 64, 128}) {
            a.channels = channels;
            ASSERT_FALSE(a.valid(smem)) << to_string(to_config(a));
          }
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(others, 500);
  for (const char* text : {"mb1ic32ih20iw400oc8kh1kw9dw29ph0pw0", "mb1ic32ih4iw900oc1kh1kw2dw299"})
    EXPECT_FALSE(candidates(parse_problem(std::string(text) + " layout=nhwc dtype=bf16")).empty()) << text;
}

TEST(DirectFewHalf, RefusesWithAReason) {
  expect_refusals(cuda::direct_few_half(),
                  {{"mb2ic32ih32oc3kh3ph1 layout=nhwc", "f32"},
                   {"mb2ic32ih32oc3kh3ph1 dtype=bf16", "NHWC alone"},
                   {"mb2g3ic33ih32oc3kh3ph1 layout=nhwc dtype=bf16", "one group"},
                   {"mb2ic32ih32oc9kh3ph1 layout=nhwc dtype=bf16", "at most 8 filters"},
                   {"mb2ic32ih32oc8kh11ph5 layout=nhwc dtype=bf16", "88 columns of filters (of 72)"},
                   {"mb2ic32ih399oc3kh3dh90 layout=nhwc dtype=bf16", "window"},
                   {"mb1ic32ih3iw2000oc1kh3kw3dh0dw800 layout=nhwc dtype=bf16", "over 1603 pixels (of 1536)"},
                   {"mb1ic1024ih2iw600000oc1kh3kw1ph1pw0 layout=nhwc dtype=bf16", "more than 2^30 numbers"},
                   {"mb1ic1024ih2iw524287oc1kh3kw1ph4pw0 layout=nhwc dtype=bf16", "padding above"},
                   {"mb2ic32ih32oc3kh3ph1 layout=nhwc dtype=bf16", "8.0", {7, 5}}});
  const ConvProblem problem = parse_problem("mb1ic64ih262oc3kh7 layout=nhwc dtype=bf16");
  expect_config_refusals(cuda::direct_few_half(), problem, to_string(candidates(problem).front()),
                         {"rows=0", "down=0", "sixteens=7", "channels=48", "channels=8", "stages=5",
                          "parts=4 channels=32", "blocks=33", "across=17", "rows=8 sixteens=6"});
}

TEST(DirectFewHalf, CompilesWithTheLeastToSpare) {
  expect_tightest_compile<DirectFewHalf>(
      *cuda::kernel_algorithm(cuda::direct_few_half()),
      {"mb1ic64ih262oc3kh7 dtype=bf16 act=gelu_tanh layout=nhwc",
       "mb1ic128ih512oc3kh3ph1 dtype=f16 layout=nhwc",
       "mb2ic20ih30oc4kh3sh2ph1 dtype=bf16 residual=1 act=silu layout=nhwc",
       "mb1ic32id8ih32iw32oc2kd3kh3kw3pd1ph1pw1 dtype=bf16 layout=nhwc"});
}

}  // namespace
}  // namespace convtune::direct_few_half_test
