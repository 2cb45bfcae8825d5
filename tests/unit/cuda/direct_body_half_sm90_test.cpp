// Inner layers in half precision without a GPU: what a config must keep to, refusals, and that what is
// offered compiles without spills. What the kernel computes is in direct_body_half_sm90_host_test.cpp.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "convtune/cases.h"
#include "cuda/algorithms/direct_body_half_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune::direct_body_half_sm90_test {
namespace {

using Kernel = DirectBodyHalfSm90;

const Algorithm& algorithm() {
  return cuda::direct_body_half_sm90();
}
ConvProblem half(const std::string& text) {
  return parse_problem(text + " layout=nhwc dtype=bf16");
}

// A consumer may be so many steps ahead of the one behind without a stage given back by that one.
TEST(DirectBodyHalfSm90, RingsHoldTheLead) {
  for (const char* text : {"mb64ic128ih28oc128kh3ph1", "mb64ic128ih56oc128kh3sh2ph1",
                           "mb64ic1024ih14oc256kh1", "mb64ic3ih224oc768kh16sh16", "mb64ic64ih56oc256kh1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const Kernel kernel = kernel_of<Kernel>(problem, config);
      int steps = 0;  // whose stages of x are there at once
      for (int stage = 0; stage < std::min(kernel.input_stages, kernel.stages()); ++stage)
        steps += kernel.taps_of(stage);
      EXPECT_LT(kernel.lead(), std::max(steps, 1)) << to_string(config);
      EXPECT_LT(kernel.lead(), kernel.weight_stages + 1) << to_string(config);
    }
  }
}

// If a stride leaves stages few taps, a chunk's phases can all be on their way behind the one that is
// read: on an H200 27.5 us instead of 31.7.
TEST(DirectBodyHalfSm90, LoadsAllPhasesAhead) {
  const ConvProblem problem = half("mb64ic128ih56oc128kh3sh2ph1");
  const std::vector<Config> configs = algorithm().candidates(problem, gpu());
  const std::string tile = "rows=14 columns=8 images=1 consumers=2 filter_blocks=1 ping_pong=0 channels=64 ";
  const Config ahead = parse_config(tile + "input_stages=5 weight_stages=6 cluster=1");
  const Config fewer = parse_config(tile + "input_stages=3 weight_stages=8 cluster=1");
  EXPECT_NE(std::find(configs.begin(), configs.end(), ahead), configs.end());
  EXPECT_LT(*algorithm().estimated_us(problem, gpu(), ahead),
            *algorithm().estimated_us(problem, gpu(), fewer));
}

// Or a block would multiply by another's filters.
TEST(DirectBodyHalfSm90, BlocksWhoseWeightsStayKeepToTheirFilters) {
  int several = 0, shared = 0;
  for (const char* text : {"mb8ic128ih28oc128kh3ph1", "mb1ic64ih30oc200kh3ph1", "mb2ic64ih15oc180kh3ph1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const Kernel kernel = kernel_of<Kernel>(problem, config);
      if (!kernel.weights_stay()) continue;
      const cuda::LaunchPlan plan = cuda::kernel_algorithm(algorithm())->plan(problem, gpu(), config);
      const int clusters =
          static_cast<int>(std::get<cuda::KernelLaunch>(plan.run.back()).blocks()) / kernel.cluster;
      for (int first = 0; first < clusters; ++first)
        for (int rank = 0; rank < kernel.cluster; ++rank)
          for (int tile = first; tile < kernel.tiles(); tile += clusters)
            ASSERT_EQ(kernel.corner(tile, rank).filter, kernel.corner(first, rank).filter)
                << to_string(config);
      several += kernel.filter_tiles() > 1, shared += kernel.shares_staging();
    }
  }
  EXPECT_GT(several, 0);
  EXPECT_GT(shared, 0);
}

// Two where a residual comes and a tile's products are few, if they fit; each serves one tile at a time.
TEST(DirectBodyHalfSm90, ResidualsOfFewProductsHaveTwoPlaces) {
  const auto most_places = [](const char* text) {
    int most = 0;
    for (const Config& config : algorithm().candidates(half(text), gpu())) {
      const Kernel kernel = kernel_of<Kernel>(half(text), config);
      EXPECT_EQ(kernel.smem_bytes(), kernel.smem_with(kernel.stagings() * kernel.places()).end);
      EXPECT_LE(kernel.smem_bytes(), Kernel::kMostSmem) << to_string(config);
      Kernel anywhere = kernel;
      anywhere.aligned = false;
      EXPECT_EQ(anywhere.places(), 1) << "elements come one by one";
      most = std::max(most, kernel.places());
    }
    return most;
  };
  EXPECT_EQ(most_places("mb64ic64ih56oc256kh1 residual=1"), 2);
  EXPECT_EQ(most_places("mb64ic64ih56oc256kh1"), 1);
  EXPECT_EQ(most_places("mb64ic256ih56oc64kh1 residual=1"), 1);
  EXPECT_EQ(most_places("mb64ic128ih28oc128kh3ph1 residual=1"), 1);
}

// Whatever swizzled operands ask for, whatever the config.
TEST(DirectBodyHalfSm90, AlignsItsRegions) {
  for (const char* text : {"mb8ic320ih32oc320kh3ph1", "mb64ic256ih14oc255kh1 residual=1",
                           "mb64ic512ih7oc512kh3ph1", "mb64ic128ih56oc128kh3sh2ph1"}) {
    const ConvProblem problem = half(text);
    for (const Config& config : algorithm().candidates(problem, gpu())) {
      const Kernel kernel = kernel_of<Kernel>(problem, config);
      EXPECT_EQ(kernel.smem().weights % 1024, 0) << to_string(config);
      EXPECT_EQ(kernel.input_stage_bytes() % 1024, 0) << to_string(config);
      EXPECT_EQ(kernel.weight_bytes() % 1024, 0) << to_string(config);
      EXPECT_EQ(kernel.smem().staging % 1024, 0) << to_string(config);
      EXPECT_EQ(kernel.staged_rows() % 8, 0) << to_string(config);
      EXPECT_EQ(kernel.smem().full % 8, 0) << to_string(config);
    }
  }
}

// ---- Problems that it takes
// ---------------------------------------------------------------------------------

TEST(DirectBodyHalfSm90, RefusesWithAReason) {
  const std::string shape = "mb2ic16ih32oc17kh3ph1", rest = " layout=nhwc dtype=bf16";
  expect_refusals(algorithm(), {{shape + rest, "this is 8.0", {8, 0}},
                                {shape + rest, "this is 10.0", {10, 0}},
                                {shape + " layout=nhwc", "f16, bf16 tensors only"},
                                {shape + " dtype=f32", "tensors"},
                                {shape + rest + " dir=bwd_w", "forward"},
                                {"mb2g2ic48ih32oc64kh3ph1" + rest, "not of 24 and 32"},
                                {"mb2g2ic64ih32oc48kh3ph1" + rest, "not of 32 and 24"},
                                {"mb2g2ic88ih32oc80kh3ph1" + rest, "in eights"},
                                {"mb2g2ic80ih36oc80kh9sh9" + rest, "at most 8 columns"},
                                {"mb2ic12ih32oc16kh3ph1" + rest, "multiples of 8"},
                                {"mb2ic16ih64oc16kh3sh9ph1" + rest, "at most 8 columns"}});
  expect_config_refusals(algorithm(), half("mb64ic128ih28oc128kh3ph1"),
                         "rows=7 columns=28 images=1 consumers=2 filter_blocks=1 ping_pong=0 channels=64 "
                         "input_stages=2 weight_stages=6 cluster=2",
                         {"rows=0", "rows=29", "columns=29", "images=2", "consumers=4", "filter_blocks=2",
                          "consumers=1 ping_pong=1", "channels=48", "input_stages=8", "weight_stages=60",
                          "input_stages=1", "cluster=3", "rows=14"});
}

TEST(DirectBodyHalfSm90, TakesEveryBodyCase) {
  for (ConvProblem problem : load_suite("body")) {
    problem.layout = Layout::nhwc;
    problem.dtype = DType::f16;
    const std::vector<Config> configs = algorithm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    for (const Config& config : configs)
      EXPECT_TRUE(algorithm().accepts(problem, gpu(), config)) << to_string(config);
  }
}

// Chooses for every kind of block the config with the most sums, with the epilogue that takes most registers;
// and both types, and a problem that leaves nothing even.
TEST(DirectBodyHalfSm90, CompilesWithTheMostSums) {
  std::vector<PlannedKernel> kernels;
  const ConvProblem problem = half("mb64ic64ih56oc256kh3ph1 act=gelu_erf residual=1");
  const std::string rest = " channels=64 input_stages=1 weight_stages=3 cluster=";
  for (const char* config : {"rows=32 columns=8 images=1 consumers=2 filter_blocks=1 ping_pong=0",
                             "rows=16 columns=8 images=1 consumers=2 filter_blocks=2 ping_pong=1",
                             "rows=24 columns=8 images=1 consumers=3 filter_blocks=1 ping_pong=0",
                             "rows=4 columns=56 images=1 consumers=1 filter_blocks=1 ping_pong=0"})
    kernels.push_back({problem, parse_config(config + rest + (kernels.size() % 2 ? "2" : "1"))});
  kernels.push_back({problem, kernels.front().config, {9, 0}, true});
  for (const char* text :
       {"mb1ic256ih14oc256kh3ph1 layout=nhwc dtype=f16 residual=1 rounding=eager",
        "mb2ic40ih33iw41oc13kh5kw3sh2sw3ph1pw2 layout=nhwc dtype=f16:f16:f16:f32 residual=1"}) {
    const ConvProblem other = parse_problem(text);
    kernels.push_back({other, algorithm().candidates(other, gpu()).front()});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(algorithm()), kernels);
}

}  // namespace
}  // namespace convtune::direct_body_half_sm90_test
