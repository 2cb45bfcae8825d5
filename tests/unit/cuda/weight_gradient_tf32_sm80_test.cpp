// The gradients of weights in TF32 without a GPU: geometry, refusals, and the tightest configs compiled.

#include <gtest/gtest.h>

#include <vector>

#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_tf32_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::weight_gradient_tf32_sm80_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::weight_gradient_tf32_sm80());
}
WeightGradientTf32Sm80 kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<WeightGradientTf32Sm80>(problem, config);
}

// Each gradient of a weight or bias is one number of one thread of one chunk.
TEST(WeightGradientTf32Sm80, HasEachGradientOnce) {
  for (const char* text : {"mb2ic20ih9iw11oc24kh3ph1", "mb2ic3ih19iw23oc40kh7sh2ph3 layout=nhwc",
                           "mb1ic130ih8oc70kh1", "mb1ic16ih12oc24kh3kw5ph2dh1dw0 layout=nhwc"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 8)) {
      WeightGradientTf32Sm80 a = kernel_for(problem, config);
      a.bias = true;
      std::vector<int> times(static_cast<std::size_t>(a.conv.weights() + a.conv.k));
      for (long long four = 0; four < a.rank_fours(); ++four)
        for (int i = 0; i < 4; ++i)
          if (const long long weight = a.weight_of(four, i); weight >= 0)
            ++times.at(static_cast<std::size_t>(weight));
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << text << " with " << to_string(config);
    }
  }
}

// Four pixels of eight channels, or filters, lie in 32 banks, with strides of 1 and 2 in channels last.
TEST(WeightGradientTf32Sm80, ReadsWithoutConflicts) {
  for (const char* text :
       {"mb8ic64ih56oc64kh3ph1", "mb8ic64ih56oc64kh3ph1 layout=nhwc",
        "mb8ic128ih28oc128kh3sh2ph1 layout=nhwc", "mb8ic256ih14oc256kh3ph1", "mb8ic512ih7oc512kh1"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    for (const Config& config : spread(algorithm().candidates(problem, gpu()), 8)) {
      const WeightGradientTf32Sm80 a = kernel_for(problem, config);
      EXPECT_TRUE(WeightGradientTf32Sm80::apart(a.conv.stride_w * a.input_pixel(), a.input_channel()))
          << text << " with " << to_string(config);
      EXPECT_TRUE(WeightGradientTf32Sm80::apart(a.gradient_pixel(), a.gradient_filter()))
          << text << " with " << to_string(config);
    }
  }
}

TEST(WeightGradientTf32Sm80, SaysWhatItDoesNotTake) {
  expect_refusals(algorithm(), {{"mb2ic8ih9oc8kh3ph1", "it computes bwd_w only"},
                                {"mb2ic8ih9oc8kh3ph1 dir=bwd_w dtype=f16", "x and dy in f32"},
                                {"mb2ic8ih9oc8kh3ph1 dir=bwd_w precision=fp32", "tf32"},
                                {"g2mb2ic8ih9oc8kh3ph1 dir=bwd_w", "one group"},
                                {"mb2ic8ih40oc8kh9ph4 dir=bwd_w", "up to 64 taps, not for 81"},
                                {"mb0ic8ih9oc8kh3ph1 dir=bwd_w", "there is no image"},
                                {"mb2ic8ih9oc8kh3ph1 dir=bwd_w", "compute capability 8.0", {7, 5}}});
}

// Partial sums of a block a tile are never too many; more blocks stay below the limit. The kernel that adds
// them up is a part of the estimate.
TEST(WeightGradientTf32Sm80, TakesWeightsOfMoreThanTheLimit) {
  const ConvProblem problem = tf32("mb2ic2816ih8oc2816kh3ph1 dir=bwd_w bias=0");
  const std::vector<Config> configs = algorithm().candidates(problem, gpu());
  ASSERT_FALSE(configs.empty());
  for (const Config& config : configs) {
    const auto words =
        static_cast<double>(kernel_of<WeightGradientTf32Sm80>(problem, config).partial_words());
    EXPECT_GT(4 * words, kMostPartialBytes) << to_string(config);
    EXPECT_GE(algorithm().work(problem, gpu(), config).converted_bytes, 2 * words) << to_string(config);
  }
}

TEST(WeightGradientTf32Sm80, RefusesForeignConfigs) {
  expect_config_refusals(
      algorithm(), tf32("mb8ic64ih28oc128kh3ph1 dir=bwd_w"),
      "filters=64 octets=4 warps_m=2 warps_o=2 warps_r=1 rows=1 columns=32 stages=2 split=8 blocks=1",
      {"filters=24", "octets=3", "warps_m=3", "warps_r=2", "columns=20", "split=60000", "blocks=8",
       "stages=5"});
}

TEST(WeightGradientTf32Sm80, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"mb64ic64ih56oc64kh3ph1", "mb64ic128ih28oc128kh3ph1 layout=nhwc",
                           "mb64ic256ih14oc256kh3ph1", "mb64ic3ih224oc64kh7sh2ph3 layout=nhwc"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    const auto candidates = [&](ComputeCapability capability) {
      return algorithm().candidates(problem, gpu(capability));
    };
    kernels.push_back({problem, candidates({9, 0}).front()});
    const Config tight = tightest<WeightGradientTf32Sm80>(problem, candidates({8, 0}));
    kernels.push_back({problem, tight, {8, 0}});
    if (kernels.size() == 2) kernels.push_back({problem, candidates({8, 6}).front(), {8, 6}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::weight_gradient_tf32_sm80_test
