// Tests the promises of the general kernel alone: it serves every problem, most of them without compiling
// anything.
#include <gtest/gtest.h>

#include "convtune/verify.h"
#include "cuda/device/driver.h"

namespace convtune::implicit_gemm_sm80_gpu_test {
namespace {

TEST(ImplicitGemmSm80, IsExactOnAnyProblem) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU: " << cuda::describe_driver();
  VerifyOptions options;
  options.algorithm = "implicit_gemm_sm80";
  constexpr std::int64_t kAsked = 400;
  const VerifyReport report = verify_random(kAsked, 9, {Device::Kind::cuda, 0}, options);
  EXPECT_EQ(report.mismatches, 0);
  for (const Mismatch& one : report.failures) ADD_FAILURE() << one.what << "\n" << one.repro;
  // One config at least that needs no compiling; more are as many as they are.
  EXPECT_GE(report.checks, kAsked + report.compiled);
  EXPECT_GE(report.compiled, 12);
}

}  // namespace
}  // namespace convtune::implicit_gemm_sm80_gpu_test
