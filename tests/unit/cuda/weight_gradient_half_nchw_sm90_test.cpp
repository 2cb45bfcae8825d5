// The gradients of weights in NCHW on tensor cores of 9.0 without a GPU: where slices lie, refusals, and the
// tightest configs compiled. That the kernel computes the same as any other is host_gpu's.

#include <gtest/gtest.h>

#include <vector>

#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_half_sm90/config.h"
#include "cuda/launch/extents.h"
#include "kernel_expectations.h"

namespace convtune::weight_gradient_half_nchw_sm90_test {
namespace {

using Kernel = WeightGradientHalfSm90;

const cuda::KernelAlgorithm& algorithm() {
  return *cuda::kernel_algorithm(cuda::weight_gradient_half_nchw_sm90());
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " dtype=bf16 precision=bf16 dir=bwd_w");
}
Kernel planes_of(const ConvProblem& problem, const Config& config) {
  return from_config(config, Kernel{.conv = cuda::extents_of(problem), .bias = problem.bias, .planes = true});
}

constexpr const char* kProblems[] = {"mb64ic64ih56oc64kh3ph1 bias=0",   "mb8ic320ih64oc320kh3ph1",
                                     "mb2ic32id128oc32kd3pd1 bias=0",   "mb2ic72ih20iw14oc136kh3ph1pw0",
                                     "mb4ic64ih28oc72kh3ph0pw1 bias=0", "mb4ic64iw200oc72kw3pw1"};

// All pixels of a stage's rows are in its slices, at whichever row they begin, each of which begins at a
// multiple of 16 bytes.
TEST(WeightGradientHalfNchwSm90, SlicesHoldTheirStages) {
  for (const char* text : kProblems) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs) {
      const Kernel a = planes_of(problem, config);
      const int pieces = a.slice_pieces(), pixels = pieces * Kernel::kPiece;
      EXPECT_EQ(pieces % 2, 1) << to_string(config);
      for (int row = 0; row < a.conv.p; row += a.window) {
        const int dy = row * a.conv.q, x = (row - a.conv.pad_top) * a.conv.w;
        for (const int begin : {dy, x}) {
          EXPECT_EQ(Kernel::first_of_piece(begin) % 8, 0);
          EXPECT_LE(Kernel::first_of_piece(begin), begin);
        }
        EXPECT_GE(Kernel::first_of_piece(dy) + a.gradient_slices(pieces) * pixels, dy + a.window * a.conv.q)
            << text << " with " << to_string(config);
        EXPECT_GE(Kernel::first_of_piece(x) + a.input_slices(pieces) * pixels, x + a.window_rows() * a.conv.w)
            << text << " with " << to_string(config);
      }
      EXPECT_LE(a.smem_bytes(), Kernel::kMostSmem) << to_string(config);
      EXPECT_EQ(a.smem().slices % 1024, 0) << to_string(config);
      EXPECT_EQ(a.smem().full % 8, 0) << to_string(config);
    }
  }
}

// No tensor is converted: partial sums are all that the plan wants.
TEST(WeightGradientHalfNchwSm90, ConvertsNothing) {
  for (const char* text : kProblems) {
    const ConvProblem problem = half(text);
    const Config config = algorithm().candidates(problem, gpu()).front();
    const cuda::LaunchPlan plan = algorithm().plan(problem, gpu(), config);
    // A kernel, and one that adds up where that does not.
    const bool joint = kernel_of<WeightGradientHalfSm90>(problem, config).joint != 0;
    EXPECT_EQ(plan.run.size(), joint ? 1u : 2u) << text;
    EXPECT_EQ(algorithm().remark(problem), "") << text;
  }
}

TEST(WeightGradientHalfNchwSm90, RefusesWithAReason) {
  const std::string rest = " dtype=bf16 dir=bwd_w";
  expect_refusals(algorithm(),
                  {{"mb2ic64ih28oc64kh3ph1" + rest, "this is 8.0", {8, 0}},
                   {"mb2ic64ih28oc64kh3ph1" + rest + " layout=nhwc", "NCHW only"},
                   {"mb2ic64id4ih14iw14oc64kd3kh3kw3pd1ph1pw1" + rest, "multiples of 8 pixels, not 196 of x"},
                   {"mb2ic64ih28oc64kh1" + rest, "not 1x1"},
                   {"mb2ic64ih28oc64kh5ph2" + rest, "up to 3 rows"},
                   {"mb2ic64ih32oc64kh3sh2ph1" + rest, "without strides"},
                   {"mb2ic68ih28oc64kh3ph1" + rest, "multiples of 8"}});
  expect_config_refusals(
      algorithm(), half("mb2ic64ih12oc200kh3ph1"),
      "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 window=3 stages=2 blocks=2 whole=2 "
      "early=0 joint=0",
      {"whole=5", "window=0", "columns=128", "blocks=4096", "pixels=32", "filter_groups=2", "stages=9"});
}

TEST(WeightGradientHalfNchwSm90, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : kProblems) {
    const ConvProblem problem = half(text);
    kernels.push_back({problem, algorithm().candidates(problem, gpu()).front()});
  }
  for (const char* text : {"mb64ic256ih14oc256kh3ph1 bias=0", "mb64ic512ih7oc512kh3ph1"}) {
    const ConvProblem problem = half(text);
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    EXPECT_EQ(planes_of(problem, configs.front()).window, problem.h);
    kernels.push_back({problem, configs.front()});
  }
  const ConvProblem wide = half("mb8ic1280ih16oc1280kh3ph1 bias=0");
  kernels.push_back({wide, algorithm().candidates(wide, gpu()).front()});
  kernels.push_back({kernels[1].problem, kernels[1].config, {9, 0}, true});
  expect_compiles_as_planned(algorithm(), kernels);
}

}  // namespace
}  // namespace convtune::weight_gradient_half_nchw_sm90_test
