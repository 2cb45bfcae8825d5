// The gradients of depthwise weights on tensor cores without a GPU: geometry, refusals, and the tightest
// configs compiled.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda/algorithms/depthwise_weight_gradient_half/config.h"
#include "kernel_expectations.h"

namespace convtune::depthwise_weight_gradient_half_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::depthwise_weight_gradient_half());
}
DepthwiseWeightGradientHalf kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<DepthwiseWeightGradientHalf>(problem, config);
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " dtype=bf16 precision=bf16 layout=nhwc dir=bwd_w");
}

// Each pair of columns of a buffer has a place of its own, where no other channel's is, and the zeros behind
// them all.
TEST(DepthwiseWeightGradientHalf, HasAPlaceForEachPairOfColumns) {
  for (const char* text :
       {"g96mb8ic96ih56oc96kh7ph3", "g16mb1ic16ih21iw140oc16kh3ph1", "g24mb5ic24ih7oc24kh5ph2"}) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 6)) {
      const DepthwiseWeightGradientHalf a = kernel_for(problem, config);
      std::set<int> words;
      const auto take = [&](int at) {
        EXPECT_LE(at + 4, a.buffer_bytes()) << to_string(config);
        EXPECT_TRUE(words.insert(at).second) << to_string(config);
      };
      for (int channel = 0; channel < a.channels(); ++channel)
        for (int row = 0; row < a.step; ++row)
          for (int strip = 0; strip < a.abreast(); ++strip) {
            for (int pair = 0; pair < 4 * (a.across + 1); ++pair)
              take(a.channel_at(channel) + a.input_at(row, strip) + 4 * pair);
            for (int pair = 0; pair < 4 * a.across; ++pair)
              take(a.channel_at(channel) + a.gradient_at(row, strip) + 4 * pair);
          }
      EXPECT_EQ(static_cast<int>(words.size()), 8 * (a.input_pairs() + a.gradient_pairs()));
      EXPECT_GE(a.split * a.turns(), a.groups());
      EXPECT_LE(a.all_blocks(), 132LL * a.blocks) << to_string(config);
    }
  }
}

// In NCHW columns come by fours where the padding and the filter allow it, and else one by one.
TEST(DepthwiseWeightGradientHalf, BeginsRowsOfPlanesAtWholeFours) {
  const auto before = [](const char* text) {
    const DepthwiseWeightGradientHalf a{
        .conv = cuda::extents_of(parse_problem(std::string(text) + " dtype=f16 dir=bwd_w"))};
    EXPECT_LE((a.conv.s - 1) * a.conv.dilation_w + a.shift() + 8, 16) << text;
    return a.before();
  };
  EXPECT_EQ(before("g8mb1ic8ih9oc8kh7ph3"), 4);
  EXPECT_EQ(before("g8mb1ic8ih9oc8kh5ph2"), 4);
  EXPECT_EQ(before("g8mb1ic8ih9oc8kh3ph1"), 4);
  EXPECT_EQ(before("g8mb1ic8ih9oc8kh3ph0"), 0);
  EXPECT_EQ(before("g8mb1ic8ih19oc8kh9ph3"), 3);  // its taps reach over all 16 columns
  EXPECT_EQ(before("g8mb1ic8ih9oc8kh7ph3 layout=nhwc"), 3);
}

TEST(DepthwiseWeightGradientHalf, SaysWhatItDoesNotTake) {
  const std::string half = " layout=nhwc dtype=bf16 precision=bf16";
  expect_refusals(algorithm(), {{"g8mb2ic8ih9oc8kh3ph1" + half, "it computes bwd_w only"},
                                {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_w layout=nhwc", "x and dy in half precision"},
                                {"g9mb2ic9ih9oc9kh3ph1 dir=bwd_w" + half, "multiples of 8 input channels"},
                                {"g8mb2ic8ih9oc8kh3sh2ph1 dir=bwd_w" + half, "for strides of 1"},
                                {"g8mb2ic8ih29oc8kh11ph5 dir=bwd_w" + half, "at most 9 rows and columns"},
                                {"g8mb2ic8ih29oc8kh5dh2 dir=bwd_w" + half, "at most 9 rows and columns"},
                                {"g8mb0ic8ih9oc8kh3ph1 dir=bwd_w" + half, "there is no image"},
                                {"g4mb2ic8ih9oc8kh3ph1 dir=bwd_w" + half, "one filter a channel"},
                                {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_w" + half, "compute capability 8.0", {7, 5}}});
}

TEST(DepthwiseWeightGradientHalf, RefusesForeignConfigs) {
  expect_config_refusals(
      algorithm(), half("g96mb8ic96ih28oc96kh7ph3"),
      "rows=14 step=2 across=4 octets=2 warps=8 ahead=2 split=2 blocks=1",
      {"rows=29", "ahead=5", "across=5", "warps=3", "warps=2", "split=60000", "blocks=16", "step=9"});
}

TEST(DepthwiseWeightGradientHalf, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"g96mb64ic96ih56oc96kh7ph3", "g144mb64ic144ih56oc144kh3ph1 bias=0",
                           "g240mb64ic240ih28oc240kh5ph2", "g384mb128ic384ih14oc384kh7ph3 bias=0",
                           "g95mb64ic95ih56oc95kh7ph3", "g237mb64ic237ih14oc237kh5ph2"}) {
    ConvProblem problem = half(text);
    if (problem.c % 8 != 0) problem.layout = Layout::nchw;
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    const Config first = configs.front();
    const Config tight =
        tightest<DepthwiseWeightGradientHalf>(problem, algorithm().candidates(problem, gpu({8, 0})));
    kernels.push_back({problem, first});
    kernels.push_back({problem, tight, {8, 0}});
    if (kernels.size() == 2) kernels.push_back({problem, first, {9, 0}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::depthwise_weight_gradient_half_test
