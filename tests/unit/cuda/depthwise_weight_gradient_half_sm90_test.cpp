// The gradients of depthwise weights by TMA without a GPU: geometry, refusals, and the tightest configs
// compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cuda/algorithms/depthwise_weight_gradient_half_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune::depthwise_weight_gradient_half_sm90_test {
namespace {

using Kernel = DepthwiseWeightGradientHalfSm90;

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::depthwise_weight_gradient_half_sm90());
}
Kernel kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<Kernel>(problem, config);
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " dtype=bf16 precision=bf16 layout=nhwc dir=bwd_w");
}

// Every column of every image is one strip's, once; what a lane reads lies in its stage; rows are dealt out
// whole.
TEST(DepthwiseWeightGradientHalfSm90, HasEachColumnOnce) {
  for (const char* text :
       {"g96mb8ic96ih56oc96kh7ph3", "g16mb1ic16ih21iw140oc16kh3ph1", "g24mb5ic24ih7oc24kh5ph2",
        "g32mb9ic32ih14oc32kh7ph3", "g8mb2ic8ih3iw1oc8kh3ph1"}) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu({9, 0}));
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 8)) {
      const Kernel a = kernel_for(problem, config);
      std::set<std::pair<int, int>> columns;  // (image of a unit, column)
      for (int side = 0; side < a.sides(); ++side)
        for (int strip = 0; strip < 4 * a.strips; ++strip)
          for (int i = 0; i < a.width; ++i) {
            const int image = strip / a.parts, of_unit = strip % a.parts * a.width + i;
            EXPECT_EQ(a.pixel_of(strip, a.input_pitch()) + i, image * a.input_pitch() + of_unit);
            EXPECT_TRUE(columns.insert({image, side * a.unit_columns() + of_unit}).second)
                << to_string(config);
          }
      for (int image = 0; image < a.images(); ++image)
        for (int q = 0; q < problem.q(); ++q) EXPECT_TRUE(columns.count({image, q})) << to_string(config);
      EXPECT_LE(a.last_read() * a.pixel_bytes(), a.stage_bytes()) << to_string(config);
      EXPECT_GE(a.input_pitch(), a.unit_columns() + a.reach()) << to_string(config);
      EXPECT_EQ(a.input_bytes() % 128, 0) << to_string(config);
      EXPECT_EQ(a.gradient_bytes() % 128, 0) << to_string(config);
      EXPECT_LE(a.split, a.rows()) << to_string(config);
      EXPECT_LE(a.all_blocks(), 132LL * a.blocks) << to_string(config);
    }
  }
}

// Four channels of each pixel have a place of their own, and what 16 lanes read at once meets at a bank
// twice and no more, in layers of ConvNeXt.
TEST(DepthwiseWeightGradientHalfSm90, LiesInBanksApart) {
  for (const char* text : {"g96mb64ic96ih56oc96kh7ph3", "g192mb64ic192ih28oc192kh7ph3",
                           "g384mb64ic384ih14oc384kh7ph3", "g768mb64ic768ih7oc768kh7ph3"}) {
    const ConvProblem problem = half(text);
    const Kernel a = kernel_for(problem, algorithm().candidates(problem, gpu({9, 0})).front());
    std::set<int> places;
    for (int pixel = 0; pixel < a.input_pixels() + a.gradient_pixels(); ++pixel)
      for (int quad = 0; quad < a.consumers(); ++quad)
        EXPECT_TRUE(places.insert(a.offset(pixel, quad)).second) << text;
    EXPECT_EQ(a.meeting(a.input_pitch()), 2) << text;
    EXPECT_EQ(a.meeting(a.gradient_pitch()), 2) << text;
    for (int first = 0; first < 2; ++first) {  // lanes 0 to 15, and 16 to 31
      std::vector<int> banks(16);
      for (int strip = 0; strip < 4; ++strip)
        for (int column = 4 * first; column < 4 * first + 4; ++column)
          ++banks[static_cast<std::size_t>(a.offset(a.pixel_of(strip, a.input_pitch()) + column, 1) / 8 %
                                           16)];
      EXPECT_EQ(*std::max_element(banks.begin(), banks.end()), 2) << text;
    }
  }
}

TEST(DepthwiseWeightGradientHalfSm90, SaysWhatItDoesNotTake) {
  const std::string half = " layout=nhwc dtype=bf16 precision=bf16";
  expect_refusals(
      algorithm(),
      {{"g8mb2ic8ih9oc8kh3ph1" + half, "it computes bwd_w only", {9, 0}},
       {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_w layout=nhwc", "x and dy in half precision", {9, 0}},
       {"g9mb2ic9ih9oc9kh3ph1 dir=bwd_w" + half, "multiples of 8 input channels", {9, 0}},
       {"g8mb2ic8ih9oc8kh3sh2ph1 dir=bwd_w" + half, "for strides of 1", {9, 0}},
       {"g8mb2ic8ih29oc8kh11ph5 dir=bwd_w" + half, "at most 9 rows and columns", {9, 0}},
       {"g8mb2ic8ih9oc8kh3ph3 dir=bwd_w" + half, "fewer rows of padding", {9, 0}},
       {"g8mb0ic8ih9oc8kh3ph1 dir=bwd_w" + half, "there is no image", {9, 0}},
       {"g4mb2ic8ih9oc8kh3ph1 dir=bwd_w" + half, "one filter a channel", {9, 0}},
       {"g8mb2ic8id4ih9iw9oc8kd3kh3kw3pd1ph1pw1 dir=bwd_w" + half, "no third dimension", {9, 0}},
       {"g8mb2ic8ih1iw2049oc8kh1kw3ph0pw1 dir=bwd_w" + half, "dy has more than 2048 columns", {9, 0}},
       {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_w" + half, "compute capability 9.0", {8, 0}}});
}

TEST(DepthwiseWeightGradientHalfSm90, RefusesForeignConfigs) {
  expect_config_refusals(algorithm(), half("g96mb8ic96ih28oc96kh7ph3"),
                         "width=28 parts=1 strips=1 octets=4 stages=8 split=2 blocks=1",
                         {"width=29", "width=33", "parts=3", "strips=2", "octets=3", "octets=8", "stages=17",
                          "split=60000", "blocks=2"});
}

TEST(DepthwiseWeightGradientHalfSm90, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"g96mb64ic96ih56oc96kh7ph3", "g144mb64ic144ih56oc144kh3ph1 bias=0",
                           "g240mb64ic240ih28oc240kh5ph2", "g384mb128ic384ih14oc384kh7ph3 bias=0"}) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu({9, 0}));
    const Config first = configs.front();
    const Config tight = tightest<Kernel>(problem, configs);
    kernels.push_back({problem, first, {9, 0}});
    kernels.push_back({problem, tight, {9, 0}});
    if (kernels.size() == 2) kernels.push_back({problem, first, {9, 0}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::depthwise_weight_gradient_half_sm90_test
