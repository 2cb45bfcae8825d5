// Inner layers in half precision that are transposed on their way, without a GPU: refusals, how a stage's
// boxes lie, what the plan moves, and that what is offered compiles without spills. That the kernel computes
// the same as any other is host_gpu's.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/algorithms/direct_body_half_sm90/config.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::direct_body_half_nchw_sm90_test {
namespace {

using Kernel = DirectBodyHalfSm90;

const Algorithm& algorithm() {
  return cuda::direct_body_half_nchw_sm90();
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " dtype=bf16");
}

Kernel kernel_for(const ConvProblem& problem, const Config& config) {
  Kernel kernel{.conv = cuda::extents_of(problem), .cache = static_cast<int>(problem.cache)};
  kernel.nchw = kernel.transposes = true;
  return from_config(config, kernel);
}

constexpr const char* kProblems[] = {"mb1ic384id3ih60iw104oc384kd3kh3kw3pd0ph1pw1",
                                     "mb8ic128ih32iw40oc128kh3ph1 residual=1",
                                     "mb2ic40ih12iw16oc72kh3sh2sw1ph1",
                                     "mb1ic256id11ih32iw32oc256kd3kh1kw1pd0ph0pw0",
                                     "mb1ic96id4ih16iw24oc96kd3kh3kw3pd2ph1pw1 pad_back=0 cache=2",
                                     "mb2ic64ih32iw32oc64kh3kw5dh1dw3ph2pw8"};

// Each pixel of a stage's line is in one place of a box, which begins at a multiple of 16 bytes.
TEST(DirectBodyHalfNchwSm90, BoxesHoldTheirStages) {
  for (const char* text : kProblems) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs) {
      const Kernel kernel = kernel_for(problem, config);
      const BodySlices slices = kernel.slices();
      const int before = kernel.horizontal().before();
      for (int column = 0; column < kernel.horizontal().output; column += kernel.columns) {
        const int first = slices.first_column(column, before);
        EXPECT_EQ(first % 8, 0) << to_string(config);
        EXPECT_EQ(first + slices.shift, column - before) << to_string(config);
      }
      EXPECT_GE(slices.columns(), slices.shift + kernel.pitch()) << to_string(config);
      EXPECT_LE(slices.columns(), 256) << to_string(config);
      EXPECT_EQ(slices.bytes() % 128, 0) << to_string(config);
      EXPECT_EQ(kernel.smem().slices % 128, 0) << to_string(config);
      EXPECT_EQ(kernel.smem().full % 8, 0) << to_string(config);
      EXPECT_LE(kernel.smem_bytes(), Kernel::kMostSmem) << to_string(config);
    }
  }
}

// No tensor is converted, and TMA's map of x has its extents.
TEST(DirectBodyHalfNchwSm90, ConvertsNothing) {
  for (const char* text : kProblems) {
    const ConvProblem problem = half(text);
    const cuda::LaunchPlan plan = cuda::kernel_algorithm(algorithm())
                                      ->plan(problem, gpu(), algorithm().candidates(problem, gpu()).front());
    EXPECT_EQ(plan.run.size(), 1u) << text;
    EXPECT_EQ(plan.workspace_bytes(), 0u) << text;
    EXPECT_EQ(algorithm().remark(problem), "") << text;
  }
}

TEST(DirectBodyHalfNchwSm90, RefusesWithAReason) {
  const std::string rest = " dtype=bf16";
  expect_refusals(algorithm(), {{"mb2ic16ih32oc17kh3ph1" + rest, "this is 8.0", {8, 0}},
                                {"mb2ic16ih32oc17kh3ph1" + rest + " layout=nhwc", "NCHW only"},
                                {"mb2ic16ih32oc17kh3ph1", "f16, bf16 tensors only"},
                                {"mb2ic16ih32oc17kh1" + rest, "pixels as they lie"},
                                {"mb2ic16ih28oc17kh3ph1" + rest, "multiples of 8 pixels, not 28"},
                                {"mb2ic12ih32oc16kh3ph1" + rest, "multiples of 8 input channels"},
                                {"mb2ic16ih32oc16kh3sh2ph1" + rest, "a stride of 1 along rows"},
                                {"mb2g2ic80ih32oc80kh3ph1" + rest, "16 where they are of several groups"}});
  expect_config_refusals(algorithm(), half("mb1ic384id3ih60iw104oc384kd3kh3kw3pd0ph1pw1"),
                         "rows=4 columns=24 images=1 consumers=2 filter_blocks=1 ping_pong=0 channels=32 "
                         "input_stages=2 weight_stages=4 cluster=1",
                         {"rows=0", "columns=20", "columns=105", "images=9", "channels=48", "input_stages=9",
                          "input_stages=1", "weight_stages=60", "cluster=3"});
}

// As many sums as there may be, with the epilogue that takes most registers; either type, and tensors that
// begin anywhere.
TEST(DirectBodyHalfNchwSm90, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  const ConvProblem problem = half("mb2ic64ih64oc256kh3ph1 act=gelu_erf residual=1");
  const std::string rest = " channels=32 input_stages=2 weight_stages=3 cluster=";
  for (const char* config : {"rows=32 columns=8 images=1 consumers=2 filter_blocks=1 ping_pong=0",
                             "rows=16 columns=8 images=1 consumers=2 filter_blocks=2 ping_pong=1",
                             "rows=24 columns=8 images=1 consumers=3 filter_blocks=1 ping_pong=0"})
    kernels.push_back({problem, parse_config(config + rest + (kernels.size() % 2 ? "2" : "1"))});
  kernels.push_back({problem, kernels.front().config, {9, 0}, true});
  for (const char* text : {"mb1ic96id4ih16iw24oc96kd3kh3kw3pd2ph1pw1 pad_back=0 cache=2 dtype=f16",
                           "mb2ic40ih12iw16oc72kh3ph1 dtype=f16 residual=1 rounding=eager"}) {
    const ConvProblem other = parse_problem(text);
    kernels.push_back({other, algorithm().candidates(other, gpu()).front()});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(algorithm()), kernels);
}

}  // namespace
}  // namespace convtune::direct_body_half_nchw_sm90_test
