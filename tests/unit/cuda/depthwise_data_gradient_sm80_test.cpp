// The gradient of x of depthwise layers with strides, without a GPU: geometry, refusals, and the tightest
// configs compiled.

#include <gtest/gtest.h>

#include <vector>

#include "cuda/algorithms/depthwise_data_gradient_sm80/config.h"
#include "cuda/algorithms/gradients.h"
#include "kernel_expectations.h"

namespace convtune::depthwise_data_gradient_sm80_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::depthwise_data_gradient_sm80());
}
DepthwiseDataGradientSm80 kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<DepthwiseDataGradientSm80>(problem, config);
}

// A strip meets by each tap what the sum says, wherever it begins, and no position that it does not load.
TEST(DepthwiseDataGradientSm80, MeetsWhatTheSumSays) {
  for (const int stride : {1, 2, 3, 4})
    for (const int dilation : {1, 2, 3})
      for (const int filter : {1, 2, 3, 5, 7})
        for (int pad = 0; pad <= 2 * filter; ++pad)
          for (const int outputs : {stride, 3 * stride}) {
            const StripAxis axis{outputs, filter, stride, dilation, pad};
            for (int output = 0; output < outputs; ++output)
              for (int tap = 0; tap < filter; ++tap) {
                const int begin = 5 * stride, distance = begin + output + pad - dilation * tap;
                const int met = axis.met(output, tap);
                ASSERT_EQ(met >= 0, distance % stride == 0);
                if (met < 0) continue;
                EXPECT_EQ(begin / stride + axis.first() + met, distance / stride);
                EXPECT_LT(met, axis.count());
                EXPECT_TRUE(axis.uses(met));
              }
          }
}

TEST(DepthwiseDataGradientSm80, HasEachOutputOnce) {
  for (const char* text : {"g16mb2ic16ih15iw13oc16kh3sh2ph1 layout=nhwc", "g5mb2ic5ih16iw30oc5kh5sh2ph2",
                           "g8mb1ic8ih9iw11oc8kh3sh3sw1ph1 dtype=bf16 layout=nhwc"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_d");
    for (const Config& config : spread(algorithm().candidates(problem, gpu()), 8)) {
      const DepthwiseDataGradientSm80 a = kernel_for(problem, config);
      EXPECT_GE(1LL * a.sides() * a.columns, a.conv.w) << to_string(config);
      EXPECT_GE(1LL * a.bands() * a.passes * a.rows, a.conv.h) << to_string(config);
      EXPECT_EQ(1LL * a.chunks() * a.width, a.conv.c) << to_string(config);
      EXPECT_GE(a.all_blocks() * a.threads(), a.shares());
      EXPECT_EQ(a.columns * a.width % a.run(), 0);
    }
  }
}

TEST(DepthwiseDataGradientSm80, SaysWhatItDoesNotTake) {
  expect_refusals(algorithm(), {{"g8mb2ic8ih9oc8kh3ph1 layout=nhwc", "it is for gradients of x with strides"},
                                {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_d", "without, forward's kernels compute them"},
                                {"g8mb2ic8ih9oc8kh3sh2ph1 dir=bwd_w", "it computes bwd_d only"},
                                {"g4mb2ic8ih9oc8kh3sh2ph1 dir=bwd_d", "one filter a channel"},
                                {"g8mb2ic8ih40oc8kh31sh2ph15 dir=bwd_d", "961 taps"},
                                {"g8mb2ic8ih99oc8kh3sh20 dir=bwd_d", "strides of up to 16"},
                                {"g8mb2ic8id5ih9iw9oc8kd3kh3kw3sd2sh2sw2 dir=bwd_d", "third dimension"},
                                {"g8mb2ic8ih9oc8kh3sh2ph1 dir=bwd_d", "compute capability 8.0", {7, 5}}});
}

// What lies between the taps of a dilated filter is neither loaded nor kept.
TEST(DepthwiseDataGradientSm80, CountsWhatDilatedTapsMeet) {
  const ConvProblem problem = tf32("g16mb2ic16ih40oc16kh3sh2dh8ph9 layout=nhwc dir=bwd_d");
  const std::vector<Config> configs = algorithm().candidates(problem, gpu());
  ASSERT_FALSE(configs.empty());
  const DepthwiseDataGradientSm80 a = kernel_for(problem, configs.front());
  EXPECT_LT(a.window(), a.down().count() * a.across().count());
  expect_refusals(algorithm(), {{"g8mb2ic8ih99oc8kh7sh2dh15ph48 dir=bwd_d", "dilations of 16 and 16"}});
}

TEST(DepthwiseDataGradientSm80, RefusesForeignConfigs) {
  expect_config_refusals(
      algorithm(), tf32("g96mb8ic96ih28oc96kh3sh2ph1 layout=nhwc dir=bwd_d dtype=bf16"),
      "width=2 rows=2 columns=4 passes=1 warps=4 blocks=4",
      {"width=3", "rows=3", "columns=5", "width=64", "warps=17", "blocks=16", "passes=65"});
}

TEST(DepthwiseDataGradientSm80, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text :
       {"g96mb64ic96ih112oc96kh3sh2ph1 dtype=bf16 layout=nhwc", "g144mb64ic144ih56oc144kh5sh2ph2 dtype=f16",
        "g144mb64ic144ih56oc144kh5sh2ph2 dtype=bf16 layout=nhwc", "g64mb16ic64ih56oc64kh7sh2ph3 layout=nhwc",
        "g96mb64ic96ih112oc96kh3sh2ph1", "g96mb16ic96ih56oc96kh3sh2dh8ph9 dtype=bf16 layout=nhwc",
        "g96mb16ic96ih56oc96kh3sh2dh3ph4"}) {
    const ConvProblem problem = tf32(std::string(text) + " dir=bwd_d");
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    const Config first = configs.front();
    const Config tight = tightest<DepthwiseDataGradientSm80>(problem, configs);
    kernels.push_back({problem, first}), kernels.push_back({problem, tight, {8, 0}});
    if (kernels.size() == 2) kernels.push_back({problem, first, {8, 6}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::depthwise_data_gradient_sm80_test
