// The gradients of depthwise weights without a GPU: geometry, refusals, and the tightest configs compiled.

#include <gtest/gtest.h>

#include <vector>

#include "cuda/algorithms/depthwise_weight_gradient_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::depthwise_weight_gradient_sm80_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::depthwise_weight_gradient_sm80());
}
DepthwiseWeightGradientSm80 kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<DepthwiseWeightGradientSm80>(problem, config);
}

// Columns of x come once each, before the first output that meets them, and stay in their place of the window
// until the last one has met them.
TEST(DepthwiseWeightGradientSm80, HasColumnsWhenOutputsMeetThem) {
  for (const char* text :
       {"g8mb1ic8ih9iw11oc8kh3ph1", "g5mb1ic5ih20iw16oc5kh5kw3sh2sw3ph2pw0", "g8mb1ic8ih7oc8kh7ph3",
        "g8mb1ic8ih15iw23oc8kh3kw4sh3sw2ph3pw4dh1dw2", "g4mb1ic4ih12oc4kh2sh4", "g4mb1ic4ih9oc4kh3sh2dh1"}) {
    const DepthwiseWeightGradientSm80 a{
        .conv = cuda::extents_of(parse_problem(std::string(text) + " layout=nhwc dir=bwd_w"))};
    std::vector<int> window(static_cast<std::size_t>(a.places()), -1);  // the columns of the places
    const auto put = [&](int column) {
      if (a.uses_column(column)) window[static_cast<std::size_t>(a.place(column))] = column;
    };
    for (int i = 0; i < a.kept(); ++i) put(i);
    for (int output = 0; output < 3 * a.period(); ++output) {
      const int phase = output % a.period();
      for (int i = 0; i < a.fresh(); ++i) {
        const int column = output * a.conv.stride_w + a.kept() + i;
        EXPECT_EQ(a.place(column), a.place(phase * a.conv.stride_w + a.kept() + i)) << text;
        put(column);
      }
      for (int s = 0; s < a.conv.s; ++s) {
        const int of_phase = phase * a.conv.stride_w + s * a.conv.dilation_w;
        EXPECT_EQ(window[static_cast<std::size_t>(a.place(of_phase))],
                  output * a.conv.stride_w + s * a.conv.dilation_w)
            << text << " at output " << output;
      }
    }
  }
}

TEST(DepthwiseWeightGradientSm80, SharesAllStripsAmongItsBlocks) {
  const ConvProblem problem = parse_problem("g96mb64ic96ih56oc96kh3ph1 layout=nhwc dir=bwd_w dtype=bf16");
  for (const Config& config : algorithm().candidates(problem, gpu())) {
    const DepthwiseWeightGradientSm80 a = kernel_for(problem, config);
    EXPECT_GE(1LL * a.split * a.workers * a.turns(), a.strips()) << to_string(config);
    EXPECT_GE(a.all_channels(), a.conv.c);
    EXPECT_LE(a.all_blocks(), 132LL * a.blocks) << to_string(config);
    EXPECT_LT(a.partial_words(), 16 << 20) << "a workspace of megabytes: " << to_string(config);
  }
}

TEST(DepthwiseWeightGradientSm80, SaysWhatItDoesNotTake) {
  expect_refusals(
      algorithm(),
      {{"g8mb2ic8ih9oc8kh3ph1 layout=nhwc", "it computes bwd_w only"},
       {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_w", "for NHWC only"},
       {"g4mb2ic8ih9oc8kh3ph1 layout=nhwc dir=bwd_w", "one filter a channel"},
       {"g8mb2ic8ih9oc8kh3ph1 layout=nhwc dir=bwd_w dtype=f16:f16:f32:f32", "x and dy of one type"},
       {"g8mb0ic8ih9oc8kh3ph1 layout=nhwc dir=bwd_w", "there is no image"},
       {"g8mb2ic8ih40oc8kh31ph15 layout=nhwc dir=bwd_w", "961 taps (at most 128)"},
       {"g8mb2ic8id4ih9iw9oc8kd3kh3kw3pd1ph1pw1 layout=nhwc dir=bwd_w", "no third dimension"},
       {"g8mb2ic8ih9oc8kh3ph1 layout=nhwc dir=bwd_w", "compute capability 8.0", {7, 5}}});
}

TEST(DepthwiseWeightGradientSm80, RefusesForeignConfigs) {
  expect_config_refusals(algorithm(), tf32("g96mb8ic96ih28oc96kh3ph1 layout=nhwc dir=bwd_w dtype=bf16"),
                         "rows=2 columns=28 width=2 lanes=48 workers=4 ahead=1 split=8 blocks=1",
                         {"width=3", "lanes=46", "workers=3", "rows=29", "columns=29", "split=60000",
                          "blocks=16", "workers=64", "ahead=3"});
}

TEST(DepthwiseWeightGradientSm80, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text :
       {"g144mb64ic144ih56oc144kh3ph1 dtype=bf16", "g96mb64ic96ih112oc96kh3sh2ph1 dtype=f16",
        "g240mb64ic240ih28oc240kh5ph2 dtype=bf16", "g96mb64ic96ih56oc96kh7ph3 dtype=bf16",
        "g144mb64ic144ih56oc144kh5sh2ph2", "g96mb16ic96ih56oc96kh7ph3"}) {
    const ConvProblem problem = tf32(std::string(text) + " layout=nhwc dir=bwd_w");
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    const Config first = configs.front();
    const Config tight = tightest<DepthwiseWeightGradientSm80>(problem, configs);
    kernels.push_back({problem, first}), kernels.push_back({problem, tight, {8, 0}});
    if (kernels.size() == 2) kernels.push_back({problem, first, {8, 6}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::depthwise_weight_gradient_sm80_test
