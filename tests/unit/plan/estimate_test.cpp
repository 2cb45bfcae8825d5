// Plans for GPUs that are elsewhere: what the compiler says is what the table holds, occupancy follows from
// it.
#include <gtest/gtest.h>

#include "cuda/compile/compiler.h"
#include "cuda/launch/kernel_algorithm.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "refusal.h"

namespace convtune::estimate_test {
namespace {

const ConvProblem kProblem = parse_problem("mb2ic3ih64oc32kh5sh4ph2");

TEST(Estimate, FactsOfEveryCandidate) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  const Target target = find_target("rtx4090");
  TargetPlanOptions options;
  options.candidates = 4;
  const TargetPlan plan = plan_for_target(kProblem, target, options);
  ASSERT_EQ(plan.candidates.size(), 4u);
  EXPECT_EQ(plan.problem.precision, Precision::tf32);
  EXPECT_FALSE(plan.refusals.empty());  // kernels of compute capability 9.0
  EXPECT_GT(plan.not_tried, 0);
  double last = 0;
  for (const CandidateEstimate& one : plan.candidates) {
    ASSERT_EQ(one.failure, "") << one.algorithm << " " << to_string(one.config);
    EXPECT_GT(one.registers, 16);
    EXPECT_GT(one.threads, 0);
    EXPECT_GT(one.blocks, 0);
    const Occupancy expected = occupancy(target, {one.threads, one.registers, one.smem_bytes});
    EXPECT_EQ(one.occupancy.blocks, expected.blocks);
    EXPECT_EQ(one.occupancy.limiter, expected.limiter);
    EXPECT_GE(one.estimate_us, 1e-3 * kProblem.bytes() / target.bandwidth_gb_s) << "faster than the roofline";
    EXPECT_GE(one.estimate_us, last) << "not ranked";
    EXPECT_FALSE(one.bound.empty());
    EXPECT_EQ(one.workspace_bytes, 0u);
    EXPECT_GE(one.packed_bytes, 4u * kProblem.weight_elements());
    last = one.estimate_us;
  }
}

TEST(Estimate, OnlyWhatWasAskedFor) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  TargetPlanOptions options;
  options.algorithm = "direct_stem_sm90";
  options.candidates = 1;
  const TargetPlan plan = plan_for_target(kProblem, find_target("h100"), options);
  ASSERT_EQ(plan.candidates.size(), 1u);
  EXPECT_EQ(plan.candidates[0].algorithm, "direct_stem_sm90");
  options.algorithm = "direct_stem_sm70";
  EXPECT_NE(refusal([&] { plan_for_target(kProblem, find_target("h100"), options); }).find("sm70"),
            std::string::npos);
}

// dx of 3x3 with strides of 2 is four launches of this kernel, and one of another.
TEST(Estimate, CountsAllPartsOfAGradient) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  const ConvProblem problem =
      parse_problem("mb64ic128ih56oc128kh3sh2ph1 precision=bf16 layout=nhwc dtype=bf16 dir=bwd_d bias=0");
  const Target target = find_target("h200");
  TargetPlanOptions options;
  options.algorithm = "implicit_gemm_half_sm90";
  options.candidates = 1;
  const TargetPlan plan = plan_for_target(problem, target, options);
  ASSERT_EQ(plan.candidates.size(), 1u);
  const auto expected = find_algorithm(Device::Kind::cuda, options.algorithm)
                            .estimated_us(problem, device_of(target), plan.candidates[0].config);
  EXPECT_NEAR(plan.candidates[0].estimate_us, expected.value(), 0.03 * expected.value());
}

TEST(Estimate, SaysWhyNothingRuns) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  TargetPlanOptions options;
  options.algorithm = "direct_stem_sm90";
  try {
    plan_for_target(kProblem, find_target("a100"), options);
    ADD_FAILURE() << "planned for what it cannot run on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("compute capability 9.0"), std::string::npos) << error.what();
  }
}

// A launch is data: made with neither a compiler nor a device.
TEST(LaunchPlan, SaysWhatIsCompiledAndLaunched) {
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "direct_stem_sm90");
  const DeviceInfo device = device_of(find_target("h100"));
  const cuda::LaunchPlan plan =
      cuda::kernel_algorithm(algorithm)->plan(kProblem, device, algorithm.candidates(kProblem, device).at(0));
  EXPECT_EQ(plan.name, "direct_stem_sm90");
  EXPECT_EQ(plan.arch, "sm_90a");
  ASSERT_EQ(plan.configs.size(), 1u);
  EXPECT_EQ(plan.configs[0].rfind("convtune::DirectStemSm90{.conv=convtune::ConvExtents{.n=2,.c=3,.h=64,", 0),
            0u);
  ASSERT_EQ(plan.pack.size(), 2u);
  EXPECT_EQ(std::get<cuda::Clear>(plan.pack[0]).begin.operand, cuda::Operand::packed);
  EXPECT_EQ(std::get<cuda::KernelLaunch>(plan.pack[1]).kernel, cuda::LaunchPlan::kPack);
  const cuda::KernelLaunch& launch = plan.kernel_launch();
  EXPECT_GT(launch.dynamic_smem_bytes, 0u);
  EXPECT_EQ(std::get<cuda::TensorMaps>(launch.arguments[0]).groups.size(), 1u);
  EXPECT_EQ(std::get<cuda::Pointer>(launch.arguments.back()), (cuda::Pointer{cuda::Operand::y, "float*"}));
}

}  // namespace
}  // namespace convtune::estimate_test
