// The gradients of weights of 1x1 layers in NCHW without a GPU: geometry, refusals, and the tightest configs
// compiled.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_planes_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::weight_gradient_planes_sm80_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::weight_gradient_planes_sm80());
}
WeightGradientPlanesSm80 kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<WeightGradientPlanesSm80>(problem, config);
}

// Each gradient of a weight or bias is one number of one thread of one tile.
TEST(WeightGradientPlanesSm80, HasEachGradientOnce) {
  for (const char* text : {"mb2ic40ih7oc24kh1", "mb2ic130ih8oc70kh1", "mb1ic16ih8oc200kh1"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    for (const Config& config : spread(algorithm().candidates(problem, gpu()), 8)) {
      WeightGradientPlanesSm80 a = kernel_for(problem, config);
      a.bias = true;
      std::vector<int> times(static_cast<std::size_t>(a.conv.weights() + a.conv.k));
      for (long long four = 0; four < a.rank_fours(); ++four)
        for (int i = 0; i < 4; ++i)
          if (const long long weight = a.weight_of(four, i); weight >= 0)
            ++times.at(static_cast<std::size_t>(weight));
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << text << " with " << to_string(config);
      EXPECT_EQ(a.first_chunk(0), 0);
      EXPECT_EQ(a.first_chunk(a.split), a.chunks());
    }
  }
}

// Eight rows of a piece lie in eight different places of 16 bytes modulo 128.
TEST(WeightGradientPlanesSm80, ReadsWithoutConflicts) {
  for (int piece = 0; piece < 8; ++piece) {
    std::set<int> places;
    for (int row = 0; row < 8; ++row) places.insert(WeightGradientPlanesSm80::piece_at(row, piece) % 128);
    EXPECT_EQ(places.size(), 8u);
  }
}

TEST(WeightGradientPlanesSm80, CopiesAsPlanesBegin) {
  const auto bytes = [](const char* text) {
    return WeightGradientPlanesSm80{.conv = cuda::extents_of(parse_problem(text))}.copied_bytes();
  };
  EXPECT_EQ(bytes("mb2ic8ih56oc8kh1 dtype=f16"), 16);
  EXPECT_EQ(bytes("mb2ic8ih14oc8kh1 dtype=f16"), 8);
  EXPECT_EQ(bytes("mb2ic8ih5iw2oc8kh1 dtype=f16"), 4);
  EXPECT_EQ(bytes("mb2ic8ih7oc8kh1 dtype=f16"), 2);
  EXPECT_EQ(bytes("mb2ic8ih7oc8kh1"), 4);
  EXPECT_EQ(bytes("mb2ic8ih14oc8kh1"), 16);
}

TEST(WeightGradientPlanesSm80, SaysWhatItDoesNotTake) {
  expect_refusals(algorithm(), {{"mb2ic8ih9oc8kh1", "it computes bwd_w only"},
                                {"mb2ic8ih9oc8kh1 dir=bwd_w layout=nhwc", "for NCHW only"},
                                {"mb2ic8ih9oc8kh3ph1 dir=bwd_w", "for 1x1 filters"},
                                {"mb2ic8ih9oc8kh1sh2 dir=bwd_w", "without strides"},
                                {"g2mb2ic8ih9oc8kh1 dir=bwd_w", "one group"},
                                {"mb2ic8ih9oc8kh1 dir=bwd_w precision=fp32", "tf32"},
                                {"mb0ic8ih9oc8kh1 dir=bwd_w", "there is no image"},
                                {"mb2ic8ih9oc8kh1 dir=bwd_w", "compute capability 8.0", {7, 5}}});
}

// Partial sums of a block a tile are never too many; more blocks stay below the limit. The kernel that adds
// them up is a part of the estimate.
TEST(WeightGradientPlanesSm80, TakesWeightsOfMoreThanTheLimit) {
  const ConvProblem problem = tf32("mb2ic8448ih8oc8448kh1 dir=bwd_w dtype=bf16 bias=0");
  const std::vector<Config> configs = algorithm().candidates(problem, gpu());
  ASSERT_FALSE(configs.empty());
  for (const Config& config : configs) {
    const auto words =
        static_cast<double>(kernel_of<WeightGradientPlanesSm80>(problem, config).partial_words());
    EXPECT_GT(4 * words, kMostPartialBytes) << to_string(config);
    EXPECT_GE(algorithm().work(problem, gpu(), config).converted_bytes, 2 * words) << to_string(config);
  }
}

TEST(WeightGradientPlanesSm80, RefusesForeignConfigs) {
  expect_config_refusals(algorithm(), tf32("mb8ic64ih28oc128kh1 dir=bwd_w dtype=bf16"),
                         "filters=64 channels=64 warps_m=2 warps_n=2 stages=3 split=8 blocks=1",
                         {"filters=24", "channels=40", "warps_m=3", "split=60000", "blocks=8", "stages=7"});
}

TEST(WeightGradientPlanesSm80, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"mb64ic64ih56oc256kh1 dtype=f16", "mb64ic1024ih14oc256kh1 dtype=bf16",
                           "mb64ic512ih7oc2048kh1 dtype=f16", "mb64ic256ih28oc128kh1"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_w");
    const auto candidates = [&](ComputeCapability capability) {
      return algorithm().candidates(problem, gpu(capability));
    };
    kernels.push_back({problem, candidates({9, 0}).front()});
    const Config tight = tightest<WeightGradientPlanesSm80>(problem, candidates({8, 0}));
    kernels.push_back({problem, tight, {8, 0}});
    if (kernels.size() == 2) kernels.push_back({problem, candidates({8, 6}).front(), {8, 6}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::weight_gradient_planes_sm80_test
