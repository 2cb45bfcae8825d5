// Grids where work of other streams runs beside them.
#include "cuda/launch/gpu_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cuda/algorithms/algorithms.h"
#include "kernel_expectations.h"

namespace convtune::gpu_share_test {
namespace {

using cuda::blocks_of_share;

TEST(GpuShare, LeavesMultiprocessorsInWholeUnits) {
  EXPECT_EQ(blocks_of_share(132, 1, 132), 132u);  // all of them, until something is said
  EXPECT_EQ(blocks_of_share(528, 1, 132), 528u);
  set_gpu_share(0.25);
  EXPECT_EQ(blocks_of_share(132, 1, 132), 33u);
  EXPECT_EQ(blocks_of_share(132, 4, 132), 32u);
  EXPECT_EQ(blocks_of_share(20, 1, 132), 20u);  // fewer than its share
  set_gpu_share(1e-6);
  EXPECT_EQ(blocks_of_share(132, 4, 132), 4u);
  EXPECT_EQ(blocks_of_share(2, 2, 132), 2u);
  std::thread([] { EXPECT_EQ(blocks_of_share(132, 1, 132), 132u); }).join();  // another thread's is its own
  set_gpu_share(1);
  EXPECT_EQ(blocks_of_share(132, 1, 132), 132u);
}

TEST(GpuShare, IsAShare) {
  EXPECT_THROW(set_gpu_share(0), Error);
  EXPECT_THROW(set_gpu_share(-1), Error);
  EXPECT_THROW(set_gpu_share(1.01), Error);
  EXPECT_EQ(blocks_of_share(132, 1, 132), 132u);
}

bool shares_sums(const Config& config) {
  return std::any_of(config.values.begin(), config.values.end(),
                     [](const auto& one) { return one.first == "split" && one.second > 1; });
}

void expect_unit(const Algorithm& algorithm, const char* text, bool goes_on) {
  const ConvProblem problem = tf32(text);
  for (const Config& config : algorithm.candidates(problem, gpu())) {
    const auto plan = cuda::kernel_algorithm(algorithm)->plan(problem, gpu(), config);
    const cuda::KernelLaunch& launch = plan.kernel_launch();
    if (!goes_on || shares_sums(config)) {
      EXPECT_EQ(launch.unit, 0u) << to_string(config);
    } else {
      ASSERT_GT(launch.unit, 0u) << to_string(config);
      EXPECT_EQ(launch.grid.x % launch.unit, 0u) << to_string(config);
      EXPECT_EQ(launch.grid.y * launch.grid.z, 1u) << to_string(config);
    }
  }
}

TEST(GpuShare, IsOfKernelsWhoseBlocksGoFromTileToTile) {
  const char* const half = "mb1ic64iw12800oc64kw7pw3 dtype=bf16 precision=bf16";
  expect_unit(cuda::direct_body_half_nchw_sm90(), half, true);
  expect_unit(cuda::direct_body_half_sm90(), "mb1ic64iw12800oc64kw7pw3 dtype=bf16 precision=bf16 layout=nhwc",
              true);
  expect_unit(cuda::implicit_gemm_half_sm90(),
              "mb1ic256iw800oc256kw3pw1 dtype=bf16 precision=bf16 layout=nhwc", true);
  expect_unit(cuda::direct_body_sm90(), "mb64ic64ih56oc64kh3ph1", true);
  expect_unit(cuda::implicit_gemm_sm90(), "mb64ic64ih56oc256kh1", true);
  expect_unit(cuda::direct_stem_sm80(), "mb64ic3ih224oc64kh7sh2ph3", false);
}

}  // namespace
}  // namespace convtune::gpu_share_test
