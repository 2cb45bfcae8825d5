// The gradients of weights on tensor cores of 9.0 without a GPU: geometry, refusals, and the tightest configs
// compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda/algorithms/weight_gradient_half_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune::weight_gradient_half_sm90_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::weight_gradient_half_sm90());
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " dtype=bf16 precision=bf16 layout=nhwc dir=bwd_w");
}
constexpr const char* kWide = "mb8ic1280ih16oc1280kh3ph1 bias=0";

// Each chunk of a tile that is not whole is one block's, and no two parts have one place.
TEST(WeightGradientHalfSm90, DealsOutWhatIsNotWhole) {
  for (const char* text : {kWide, "mb2ic64ih28oc72kh3ph1", "mb8ic640ih32oc640kh3ph1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : spread(algorithm().candidates(problem, gpu()), 8)) {
      const auto a = kernel_of<WeightGradientHalfSm90>(problem, config);
      std::vector<int> parts(static_cast<std::size_t>(a.places()));
      long long chunks = 0;
      for (int block = 0; block < a.blocks && a.work() > 0; ++block) {
        const long long begin = a.first_work(block), end = a.first_work(block + 1);
        chunks += end - begin;
        for (long long piece = begin; piece < end; piece = (piece / a.chunks() + 1) * a.chunks()) {
          const int tile = a.whole + static_cast<int>(piece / a.chunks());
          EXPECT_GE(block, a.first_sharer(tile));
          EXPECT_LE(block, a.last_sharer(tile));
          ++parts.at(static_cast<std::size_t>(a.place(block, tile)));
        }
      }
      EXPECT_EQ(chunks, a.work()) << text << " with " << to_string(config);
      EXPECT_TRUE(std::ranges::all_of(parts, [](int times) { return times <= 1; }))
          << text << " with " << to_string(config);
    }
  }
}

// Three of 400 tiles for each of 132 blocks: what goes through memory is the rest alone.
TEST(WeightGradientHalfSm90, StoresMostTilesOfAWideLayerWhole) {
  const ConvProblem problem = half(kWide);
  const auto a = kernel_of<WeightGradientHalfSm90>(problem, algorithm().candidates(problem, gpu()).front());
  EXPECT_GT(a.window, 0);
  EXPECT_EQ(a.whole, a.tiles() / a.blocks * a.blocks);
  EXPECT_LT(a.partial_words() * 4, 64 << 20);
}

// PyTorch copies what others store, 29 MB of it: 42 us on an H200, of 69.
TEST(WeightGradientHalfSm90, LaysGradientsOfFewPixelsChannelsLast) {
  for (const char* text : {"mb4ic1280ih8oc1280kh3ph1 bias=0", "mb4ic1280ih16oc1280kh3ph1 bias=0",
                           "mb4ic2560ih8oc1280kh3ph1 bias=0", "mb4ic1280ih16oc1280kh3sh2ph1 bias=0",
                           "mb4ic1280ih16oc1280kh1 bias=0"}) {
    const ConvProblem problem = half(text);
    const Config config = algorithm().candidates(problem, gpu()).front();
    EXPECT_EQ(kernel_of<WeightGradientHalfSm90>(problem, config).joint, 1) << text;
    EXPECT_TRUE(algorithm().plan(problem, gpu(), config).can_lay_dw_last()) << text;
  }
}

// No block of columns is half idle where channels are 32, or 96; and where an H200 was faster so, or slower,
// a first guess is. A search has all kinds.
TEST(WeightGradientHalfSm90, HasNarrowWindows) {
  const auto narrow = [](const char* text) {
    std::vector<bool> found;
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu()))
      found.push_back(kernel_of<WeightGradientHalfSm90>(problem, config).is_narrow());
    return found;
  };
  for (const char* text : {"ic32id128ih128iw128oc32kd3kh3kw3pd1ph1pw1", "mb64ic64ih56oc64kh3ph1",
                           "mb64ic128ih28oc128kh3ph1", "mb16ic128ih80oc128kh3ph1"})
    EXPECT_TRUE(narrow(text).front()) << text;
  for (const char* text : {"mb64ic256ih14oc256kh3ph1", "mb8ic320ih64oc320kh3ph1", "mb16ic256ih20oc256kh3ph1",
                           "mb8ic640ih32oc640kh3ph1"}) {
    const std::vector<bool> found = narrow(text);
    EXPECT_FALSE(found.front()) << text;
    EXPECT_LT(std::ranges::find(found, true) - found.begin(), 3) << text;
  }
  EXPECT_EQ(std::ranges::count(narrow("mb64ic40ih14oc64kh3ph1"), true), 0);
}

// A block of the second kernel adds up filters of one tile, of windows of three taps, too.
TEST(WeightGradientHalfSm90, AddsUpFiltersOfOneTile) {
  for (const char* text : {"mb1ic32ih56oc384kh1kw3ph0pw1", "mb1ic32ih56oc384kh3kw1ph1pw0",
                           "mb1ic96ih56oc384kh1kw3ph0pw1", "mb1ic96ih56oc384kh3kw1ph1pw0"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const auto a = kernel_of<WeightGradientHalfSm90>(problem, config);
      EXPECT_EQ(a.kBlock % a.added_filters(), 0) << text << " with " << to_string(config);
    }
  }
}

// Columns of a window overlap. compute-sanitizer counts their bytes one behind the other, and says that they
// are read behind shared memory where a stage is not as long.
TEST(WeightGradientHalfSm90, ReadsWithinAStageHoweverItIsCounted) {
  for (const char* text : {"mb2ic64ih10oc72kh3ph1", "mb1ic8ih3oc8kh3ph1", "mb2ic24ih5iw4oc16kh2kw3ph1pw1",
                           "ic32id8ih16iw16oc32kd3kh3kw3pd1ph1pw1", "mb64ic512ih7oc512kh3ph1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const auto a = kernel_of<WeightGradientHalfSm90>(problem, config);
      if (a.window == 0) continue;
      EXPECT_LE(a.counted_end(), a.stage_bytes()) << text << " with " << to_string(config);
      EXPECT_EQ(a.input_bytes() % 1024, 0) << text << " with " << to_string(config);
    }
  }
}

// A window multiplies positions, which are more than pixels.
TEST(WeightGradientHalfSm90, CountsPositionsOfAWindow) {
  const ConvProblem problem = half("mb2ic64ih10oc64kh3ph1 bias=0");
  const Ceilings ceilings{.flops_per_second = 1e12, .bytes_per_second = 1e30};
  const Config config = parse_config(
      "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 window=5 stages=2 blocks=2 "
      "whole=0 early=0 joint=0");
  const auto a = kernel_of<WeightGradientHalfSm90>(problem, config);
  ASSERT_EQ(a.positions(), 64);
  ASSERT_EQ(a.chunks(), 4);
  EXPECT_NEAR(algorithm().bound_us(problem, gpu(), config, ceilings) *
                  ceilings.peak(element_row(problem.dtype.x).products) / 1e6,
              2.0 * 4 * 64 * 64 * 576, 1);
}

TEST(WeightGradientHalfSm90, RefusesForeignConfigs) {
  expect_config_refusals(
      algorithm(), half("mb2ic64ih10oc200kh3ph1"),
      "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 window=3 stages=2 blocks=2 whole=2 "
      "early=0 joint=0",
      {"whole=5", "window=0", "columns=128", "columns=32", "blocks=4096", "pixels=32", "filter_groups=2"});
  expect_config_refusals(algorithm(), half("mb2ic64id10oc200kd3pd1"),
                         "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 window=3 "
                         "stages=2 blocks=2 whole=0 early=1 joint=0",
                         {"whole=2"});
}

TEST(WeightGradientHalfSm90, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {kWide, "mb64ic64ih56oc64kh3ph1", "mb64ic512ih7oc512kh3ph1",
                           "ic32id128ih128iw128oc32kd3kh3kw3pd1ph1pw1", "mb1ic32ih56oc384kh1kw3ph0pw1"}) {
    const ConvProblem problem = half(text);
    kernels.push_back({problem, algorithm().candidates(problem, gpu()).front()});
  }
  kernels.push_back({kernels.front().problem, kernels.front().config, {9, 0}, true});
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::weight_gradient_half_sm90_test
