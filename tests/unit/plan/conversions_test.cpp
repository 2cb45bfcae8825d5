// Half precision in NCHW by kernels that are for channels last alone: what the plan says, without a GPU.
#include "cuda/launch/conversions.h"

#include <gtest/gtest.h>

#include "kernel_expectations.h"
#include "plan/planner.h"

namespace convtune::cuda::conversions_test {
namespace {

const KernelAlgorithm& named(std::string_view name) {
  return *kernel_algorithm(find_algorithm(Device::Kind::cuda, name));
}

LaunchPlan first_plan(const KernelAlgorithm& algorithm, const ConvProblem& problem) {
  return algorithm.plan(problem, gpu(), algorithm.candidates(problem, gpu()).at(0));
}

// The operands that the arguments of the convolution's kernel name.
std::vector<Operand> operands_of(const LaunchPlan& plan) {
  std::vector<Operand> operands;
  for (const Argument& argument : plan.kernel_launch().arguments) {
    if (const auto* pointer = std::get_if<Pointer>(&argument)) operands.push_back(pointer->operand);
    if (const auto* maps = std::get_if<TensorMaps>(&argument))
      for (const TensorMapGroup& group : maps->groups) operands.push_back(group.operand);
  }
  return operands;
}

TEST(Conversions, AreStepsOfThePlan) {
  const ConvProblem problem = tf32("mb4ic64ih28oc96kh3ph1 dtype=bf16 residual=1");
  const LaunchPlan plan = first_plan(named("implicit_gemm_half_sm90"), problem);
  ASSERT_EQ(plan.run.size(), 4u);
  EXPECT_EQ(std::get<Conversion>(plan.run[0]),
            (Conversion{Operand::x, Operand::x_nhwc, {4, 64, 28 * 28, 2}}));
  EXPECT_EQ(std::get<Conversion>(plan.run[1]),
            (Conversion{Operand::residual, Operand::residual_nhwc, {4, 96, 28 * 28, 2}}));
  EXPECT_EQ(std::get<KernelLaunch>(plan.run[2]).kernel, LaunchPlan::kRun);
  EXPECT_EQ(std::get<Conversion>(plan.run[3]),
            (Conversion{Operand::y_nhwc, Operand::y, {4, 28 * 28, 96, 2}}));
  for (const Operand operand : operands_of(plan))
    EXPECT_TRUE(operand == Operand::x_nhwc || operand == Operand::residual_nhwc ||
                operand == Operand::y_nhwc || operand == Operand::packed ||
                operand == Operand::cache)  // the cache of frames is empty here
        << to_string(operand);
}

// Its outputs lie right in NCHW, and of 1x1 layers the pixels do, where TMA can copy their rows.
TEST(Conversions, LeaveAloneWhatAKernelHasInBothLayouts) {
  const KernelAlgorithm& algorithm = named("direct_body_half_sm90");
  const LaunchPlan plan = first_plan(algorithm, tf32("mb4ic64ih28oc96kh3ph1 dtype=bf16 residual=1"));
  ASSERT_EQ(plan.run.size(), 2u);
  EXPECT_EQ(std::get<Conversion>(plan.run[0]).from, Operand::x);
  EXPECT_EQ(plan.workspace, (std::vector<WorkspacePart>{{Operand::x_nhwc, 4 * 64 * 784 * 2}}));
  const ConvProblem pointwise = tf32("mb4ic64ih28oc96kh1 dtype=bf16 residual=1");
  EXPECT_EQ(first_plan(algorithm, pointwise).run.size(), 1u);
  EXPECT_EQ(algorithm.remark(pointwise), "");
  for (const char* line :
       {"mb4ic64ih15oc96kh1 dtype=bf16", "mb4ic64ih8oc96kh1 dtype=bf16", "mb4ic64ih28oc96kh1sh2 dtype=bf16"})
    EXPECT_EQ(first_plan(algorithm, tf32(line)).run.size(), 2u) << line;
}

TEST(Conversions, HaveMemoryOfTheirOwn) {
  const ConvProblem problem = tf32("mb3ic40ih7oc24kh3ph1 dtype=f16");
  const LaunchPlan plan = first_plan(named("implicit_gemm_half_sm90"), problem);
  EXPECT_EQ(plan.workspace, (std::vector<WorkspacePart>{{Operand::x_nhwc, 3 * 40 * 49 * 2},
                                                        {Operand::y_nhwc, 3 * 24 * 49 * 2}}));
  EXPECT_EQ(plan.workspace_bytes(), 11776u + 7168u);  // multiples of 256
}

// The kernel is that of the same problem in NHWC.
TEST(Conversions, ChangeNothingElse) {
  for (const char* line : {"mb4ic64ih28oc96kh3ph1 dtype=bf16", "g32mb2ic32ih14oc32kh3ph1 dtype=f16",
                           "g4mb2ic64ih14oc64kh3ph1 dtype=bf16"}) {
    const ConvProblem nchw = tf32(line);
    ConvProblem nhwc = nchw;
    nhwc.layout = Layout::nhwc;
    for (const KernelAlgorithm* algorithm : own_algorithms()) {
      if (!algorithm->supports(nchw, gpu()) || algorithm->remark(nchw).empty() ||
          algorithm->name() == "direct_body_half_sm90")
        continue;
      EXPECT_EQ(algorithm->candidates(nchw, gpu()), algorithm->candidates(nhwc, gpu()));
      const LaunchPlan plan = first_plan(*algorithm, nchw), of_nhwc = first_plan(*algorithm, nhwc);
      EXPECT_EQ(plan.configs, of_nhwc.configs);
      EXPECT_EQ(plan.config_for_any_pointer, of_nhwc.config_for_any_pointer);
      EXPECT_EQ(plan.packed_bytes(), of_nhwc.packed_bytes());
      EXPECT_EQ(plan.kernel_launch().grid, of_nhwc.kernel_launch().grid);
      const auto converts = [](const Step& step) { return std::holds_alternative<Conversion>(step); };
      EXPECT_EQ(std::count_if(of_nhwc.run.begin(), of_nhwc.run.end(), converts), 0);
      EXPECT_EQ(std::ssize(plan.run) - std::ssize(of_nhwc.run),
                std::count_if(plan.run.begin(), plan.run.end(), converts));
      EXPECT_EQ(algorithm->remark(nhwc), "");
    }
  }
}

// One channel, or one pixel, is the same in both layouts.
TEST(Conversions, LeaveAloneWhatIsTheSameInBothLayouts) {
  const KernelAlgorithm& algorithm = named("implicit_gemm_half_sm90");
  const LaunchPlan to_a_pixel = first_plan(algorithm, tf32("mb4ic64ih7oc32kh7 dtype=bf16"));
  ASSERT_EQ(to_a_pixel.run.size(), 2u);
  EXPECT_EQ(std::get<Conversion>(to_a_pixel.run[0]).from, Operand::x);
  const ConvProblem pixels = tf32("mb4ic64ih1oc32kh1 dtype=bf16");
  const LaunchPlan plan = first_plan(algorithm, pixels);
  EXPECT_EQ(plan.run.size(), 1u);
  EXPECT_EQ(plan.workspace_bytes(), 0u);
  EXPECT_EQ(algorithm.remark(pixels), "");
  const std::vector<Operand> operands = operands_of(plan);
  EXPECT_NE(std::find(operands.begin(), operands.end(), Operand::y), operands.end());
}

TEST(Conversions, AreOfHalvesAlone) {
  expect_refusals(named("direct_depthwise_sm80"), {{"g32mb2ic32ih14oc32kh3ph1", "NHWC only"}});
  expect_refusals(named("implicit_gemm_half_sm90"), {{"mb2ic32ih14oc32kh3ph1", "f16, bf16 tensors only"}});
  EXPECT_TRUE(named("direct_depthwise_sm80").supports(tf32("g32mb2ic32ih14oc32kh3ph1 dtype=f16"), gpu()));
}

TEST(Conversions, AreNotTooLarge) {
  ConvProblem problem = tf32("mb1000000ic1024ih1000oc1024kh1 dtype=bf16");
  EXPECT_NE(takes_conversions(problem, {.x = true}).reason().find("x of 1000000 images"), std::string::npos);
  problem.n = 64;
  EXPECT_TRUE(takes_conversions(problem, {.x = true, .y = true}));
}

TEST(Conversions, AreSaidInWordsAndCountedInTime) {
  const ConvProblem problem = tf32("mb64ic64ih56oc64kh3ph1 dtype=bf16");
  ConvProblem nhwc = problem;
  nhwc.layout = Layout::nhwc;
  const KernelAlgorithm& algorithm = named("implicit_gemm_half_sm90");
  EXPECT_EQ(algorithm.remark(problem),
            "converts x and y between NCHW and NHWC, with 51.38 MB of memory for them");
  EXPECT_EQ(
      with_remark("named by the caller", algorithm, problem),
      "named by the caller; it converts x and y between NCHW and NHWC, with 51.38 MB of memory for them");
  const ConvProblem odd = tf32("mb64ic64ih28oc64kh3ph1 dtype=bf16");  // no rows of whole pieces of 16 bytes
  const Plan plan = first_guess(odd, gpu());
  const std::string remark = named(plan.algorithm).remark(odd);
  EXPECT_NE(remark, "");
  EXPECT_NE(plan.why.find(remark), plan.why.npos) << plan.why;
  const Config config = algorithm.candidates(nhwc, gpu()).at(0);
  const double us = algorithm.estimated_us(problem, gpu(), config).value(),
               nhwc_us = algorithm.estimated_us(nhwc, gpu(), config).value();
  const TileWork work = algorithm.work(problem, gpu(), config);
  EXPECT_EQ(work.conversions, 2);
  EXPECT_EQ(work.converted_bytes, 2 * 51380224.0);
  const Target target = target_of(gpu());
  EXPECT_NEAR(us - nhwc_us, 2 * 5 + 2 * 51380224.0 / (0.77e3 * target.bandwidth_gb_s), 0.01);
}

// Without a change a record of another transposing kernel would still be believed.
TEST(Conversions, ArePartOfTheSourceHash) {
  EXPECT_NE(named("direct_body_half_sm90").source_hash(),
            kernel_source_hash(kernel_file("direct_body_half_sm90")));
  EXPECT_EQ(named("direct_stem_half").source_hash(), kernel_source_hash(kernel_file("direct_stem_half")));
}

}  // namespace
}  // namespace convtune::cuda::conversions_test
