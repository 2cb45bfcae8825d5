// The gradients of weights on tensor cores of 8.0 and up without a GPU: geometry, refusals, and the tightest
// configs compiled.

#include <gtest/gtest.h>

#include <set>
#include <variant>
#include <vector>

#include "cuda/algorithms/weight_gradient_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::weight_gradient_sm80_test {
namespace {

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::weight_gradient_sm80());
}
WeightGradientSm80 kernel_for(const ConvProblem& problem, const Config& config) {
  return kernel_of<WeightGradientSm80>(problem, config);
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " dtype=bf16 precision=bf16 layout=nhwc dir=bwd_w");
}

// Each gradient of a weight or bias is one number of one thread of one chunk.
TEST(WeightGradientSm80, HasEachGradientOnce) {
  for (const char* text :
       {"mb2ic3ih19iw23oc40kh7sh2ph3", "mb2ic3ih16iw24oc16kh4sh4", "mb1ic4ih13iw18oc24kh3ph1",
        "g8mb2ic32ih13iw17oc32kh3ph1", "g4mb1ic32ih15oc32kh3sh2ph1", "g3mb1ic48ih9iw11oc48kh3ph2dh1",
        "g2mb2ic64ih8oc128kh3ph1", "mb2ic24ih9oc40kh3kw2ph1", "g8mb2ic32ih13iw17oc64kh3ph1",
        "g6mb1ic96ih9oc96kh3ph1", "mb2ic1id7ih10iw13oc24kd3kh3kw3pd1ph1pw1",
        "mb1ic2id6ih9iw17oc40kd3kh5kw3sd2sh1sw2pd2ph2pw1",
        "mb1ic1id5ih11iw12oc16kd4kh3kw3sd1sh2sw2pd3ph1pw1"}) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : spread(configs, 8)) {
      const WeightGradientSm80 a = kernel_for(problem, config);
      std::vector<int> times(static_cast<std::size_t>(a.conv.weights() + a.conv.k));
      for (int chunk = 0; chunk < a.chunks(); ++chunk)
        for (int thread = 0; thread < a.threads(); ++thread)
          for (int four = 0; four < a.thread_fours(); ++four)
            for (int i = 0; i < 4; ++i)
              if (const long long weight = a.weight_of(chunk, thread, four, i); weight >= 0)
                ++times.at(static_cast<std::size_t>(weight));
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << text << " with " << to_string(config);
    }
  }
}

// Eight pixels beside each other are in eight different places of 16 bytes modulo 128, of dy, and of x at
// every tap.
TEST(WeightGradientSm80, ReadsWithoutConflicts) {
  for (const char* text : {"g32mb8ic128ih56oc128kh3ph1", "g14mb8ic224ih56oc224kh3sh2ph1",
                           "mb8ic3ih224oc64kh7sh2ph3", "mb8ic3ih224oc96kh4sh4", "mb8ic3ih224oc64kh3ph1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : spread(algorithm().candidates(problem, gpu()), 8)) {
      const WeightGradientSm80 a = kernel_for(problem, config);
      for (int tap = 0; tap < a.row_taps(); ++tap) {
        std::set<int> input, gradient;
        for (int pixel = 0; pixel < 8; ++pixel) {
          const int unit = pixel * a.unit_stride() + tap * a.unit_dilation();
          EXPECT_EQ(a.unit_at(unit), pixel + a.unit_at(tap * a.unit_dilation()));
          input.insert(a.unit_at(unit) * a.unit_bytes() % 128);
          gradient.insert(pixel * a.pixel_bytes() % 128);
        }
        EXPECT_EQ(input.size(), 8u) << text << " with " << to_string(config);
        EXPECT_EQ(gradient.size(), 8u) << text << " with " << to_string(config);
      }
    }
  }
}

TEST(WeightGradientSm80, SaysWhatItDoesNotTake) {
  const std::string half = " layout=nhwc dtype=bf16 precision=bf16";
  expect_refusals(
      algorithm(),
      {{"mb2ic8ih9oc8kh3ph1" + half, "it computes bwd_w only"},
       {"mb2ic8ih9oc8kh3ph1 dir=bwd_w layout=nhwc", "x and dy in half precision"},
       {"mb2ic8ih9oc8kh3ph1 dir=bwd_w", "x and dy in half precision"},
       {"mb2ic5ih9oc8kh3ph1 dir=bwd_w" + half, "channels in eights or at most 4"},
       {"mb2ic8ih9oc9kh3ph1 dir=bwd_w" + half, "filters in eights"},
       {"g2mb2ic24ih9oc24kh3ph1 dir=bwd_w" + half, "of several groups for 4, 8 or multiples of 16"},
       {"g8mb2ic8ih9oc8kh3ph1 dir=bwd_w" + half, "for 4, 8 or multiples"},
       {"mb2ic8id5ih9iw9oc8kd3kh3kw3pd1ph1pw1 dir=bwd_w" + half, "of which a pixel meets at most 8"},
       {"mb0ic8ih9oc8kh3ph1 dir=bwd_w" + half, "there is no image"},
       {"mb2ic8ih9oc8kh3ph1 dir=bwd_w" + half, "compute capability 8.0", {7, 5}}});
}

// In NCHW x and dy are converted before the kernel, and both kernels read what was.
TEST(WeightGradientSm80, ConvertsWhatItReads) {
  const ConvProblem problem = parse_problem("mb2ic8ih9oc16kh3ph1 dtype=f16 dir=bwd_w");
  const cuda::LaunchPlan plan =
      algorithm().plan(problem, gpu(), algorithm().candidates(problem, gpu()).front());
  ASSERT_EQ(plan.run.size(), 4u);
  EXPECT_EQ(std::get<cuda::Conversion>(plan.run[0]),
            (cuda::Conversion{cuda::Operand::x, cuda::Operand::x_nhwc, {2, 8, 81, 2}}));
  EXPECT_EQ(std::get<cuda::Conversion>(plan.run[1]),
            (cuda::Conversion{cuda::Operand::dy, cuda::Operand::y_nhwc, {2, 16, 81, 2}}));
  for (const std::size_t step : {2, 3})
    for (const cuda::Argument& argument : std::get<cuda::KernelLaunch>(plan.run[step]).arguments)
      if (const auto* pointer = std::get_if<cuda::Pointer>(&argument)) {
        EXPECT_NE(pointer->operand, cuda::Operand::x);
        EXPECT_NE(pointer->operand, cuda::Operand::dy);
      }
}

TEST(WeightGradientSm80, RefusesForeignConfigs) {
  expect_config_refusals(
      algorithm(), half("g32mb8ic128ih28oc128kh3ph1"),
      "rows=4 columns=32 filters=64 octets=2 warps_m=4 warps_o=1 warps_r=1 stages=2 split=8 blocks=1",
      {"columns=20", "filters=72", "octets=3", "warps_m=3", "warps_o=4", "warps_r=2", "split=60000",
       "blocks=16", "stages=5", "rows=33"});
}

// Two sixteens of a warp may not be of two groups.
TEST(WeightGradientSm80, RefusesWarpsOfHalfAGroup) {
  expect_config_refusals(
      algorithm(), half("g4mb2ic64ih12oc192kh3ph1"),
      "rows=4 columns=8 filters=96 octets=2 warps_m=6 warps_o=1 warps_r=1 stages=1 split=2 blocks=1",
      {"warps_m=3", "warps_m=1"});
}

// 24 channels are three eights, which one block has: dy is read once.
TEST(WeightGradientSm80, HasAllEightsOfChannels) {
  const ConvProblem problem = half("mb64ic24ih150oc24kh3ph1");
  EXPECT_EQ(kernel_for(problem, algorithm().candidates(problem, gpu()).front()).octets, 3);
}

TEST(WeightGradientSm80, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"g32mb64ic128ih56oc128kh3ph1", "g14mb64ic224ih56oc224kh3sh2ph1",
                           "mb64ic3ih224oc64kh7sh2ph3", "mb64ic3ih224oc96kh4sh4", "mb64ic3ih224oc32kh3sh2ph1",
                           "g2mb64ic64ih56oc64kh3ph1", "mb2ic1id128ih128iw128oc32kd3kh3kw3pd1ph1pw1"}) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    const Config first = configs.front();
    const Config tight = tightest<WeightGradientSm80>(problem, configs);
    kernels.push_back({problem, first});
    kernels.push_back({problem, tight});
    if (kernels.size() == 2) kernels.push_back({problem, first, {9, 0}, true});
  }
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::weight_gradient_sm80_test
