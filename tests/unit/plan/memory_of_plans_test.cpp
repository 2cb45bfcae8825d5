// Memory beside the tensors that plans of the suite `video` take, for GPUs that are elsewhere: every config
// that a search may try, and the first guess.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernel_expectations.h"
#include "plan/planner.h"

namespace convtune::memory_of_plans_test {
namespace {

using Names = std::vector<std::string>;

std::vector<ConvProblem> video(DType type, Layout layout) {
  std::vector<ConvProblem> problems = load_suite("video");
  for (ConvProblem& problem : problems) {
    problem.dtype = type, problem.layout = layout;
    problem = resolve(problem, Precision::tf32);
  }
  return problems;
}
// As causal layers that are given the frames before x's as a tensor of their own.
std::vector<ConvProblem> with_caches(const std::vector<ConvProblem>& problems) {
  std::vector<ConvProblem> causal;
  for (ConvProblem problem : problems) {
    const std::int64_t before = problem.t - 1 - problem.pad_front;
    if (problem.t == 1 || problem.stride_d > 1 || problem.d <= before) continue;
    problem.d -= before, problem.pad_front += before, problem.cache = problem.pad_front;
    causal.push_back(resolve(problem, Precision::tf32));
  }
  return causal;
}

void expect_nothing(const cuda::LaunchPlan& plan, const std::string& what) {
  EXPECT_EQ(plan.workspace_bytes(), 0u) << what;
  EXPECT_EQ(plan.pack_workspace_bytes(), 0u) << what;
  EXPECT_TRUE(plan.more.empty()) << what;
}

cuda::LaunchPlan first_plan(const ConvProblem& problem, const DeviceInfo& device) {
  const Plan guess = first_guess(problem, device, true);
  return cuda::kernel_algorithm(find_algorithm(Device::Kind::cuda, guess.algorithm))
      ->plan(problem, device, guess.config);
}

// The configs that were looked at.
std::size_t expect_nothing_of_any(const std::vector<ConvProblem>& problems, const DeviceInfo& device) {
  std::size_t configs = 0;
  for (const ConvProblem& problem : problems)
    for (const cuda::KernelAlgorithm* algorithm : own_algorithms()) {
      if (!algorithm->supports(problem, device)) continue;
      for (const Config& config : algorithm->candidates(problem, device)) {
        expect_nothing(
            algorithm->plan(problem, device, config),
            to_string(problem) + " by " + std::string(algorithm->name()) + " " + to_string(config));
        ++configs;
      }
    }
  return configs;
}

class MemoryOfPlans : public testing::TestWithParam<const char*> {
 protected:
  const DeviceInfo device = device_of(find_target(GetParam()));
};

TEST_P(MemoryOfPlans, OfVideoChannelsLastIsNothing) {
  const std::vector<ConvProblem> bf16 = video(DType::bf16, Layout::nhwc);
  EXPECT_GT(expect_nothing_of_any(bf16, device), 100 * bf16.size());
  const std::vector<ConvProblem> causal = with_caches(bf16);
  EXPECT_GT(expect_nothing_of_any(causal, device), 100 * causal.size());
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const ConvProblem& problem : video(type, Layout::nhwc))
      expect_nothing(first_plan(problem, device), to_string(problem));
}

// The test above sees split sums, which blocks of a cluster add up in shared memory.
TEST_P(MemoryOfPlans, IsAskedOfSplitSums) {
  int split = 0;
  for (const ConvProblem& problem : video(DType::bf16, Layout::nhwc)) {
    const Plan guess = first_guess(problem, device, true);
    for (const auto& [field, value] : guess.config.values) split += field == "split" && value > 1;
  }
  EXPECT_GE(split, 3);
}

// In halves channels first some kernels read x channels last, which a step before them has put so.
TEST_P(MemoryOfPlans, OfVideoChannelsFirstIsWhatIsConverted) {
  Names convert;
  for (const ConvProblem& problem : video(DType::bf16, Layout::nchw)) {
    for (const cuda::KernelAlgorithm* algorithm : own_algorithms()) {
      if (!algorithm->supports(problem, device)) continue;
      const bool converts = !algorithm->remark(problem).empty();
      for (const Config& config : algorithm->candidates(problem, device))
        EXPECT_EQ(algorithm->plan(problem, device, config).workspace_bytes() > 0, converts)
            << to_string(problem) << " by " << algorithm->name() << " " << to_string(config);
    }
    const cuda::LaunchPlan plan = first_plan(problem, device);
    if (plan.workspace_bytes() > 0) convert.push_back(problem.name);
    EXPECT_LE(plan.workspace_bytes(), std::size_t{256} << 20) << problem.name;
  }
  EXPECT_EQ(convert,
            (Names{"wan_384_60_first", "hunyuan_512_64", "cogvideox_512_256_120", "cogvideox_down_256",
                   "unet_down_32_64", "unet_256_16", "unet_320_8", "unet_320_4"}));
  for (const ConvProblem& problem : video(DType::f32, Layout::nchw))
    expect_nothing(first_plan(problem, device), to_string(problem));
}

// Parts of a gradient follow each other: the largest workspace, and weights side by side.
TEST_P(MemoryOfPlans, CountsAllPartsOfAGradient) {
  const ConvProblem problem =
      tf32("mb2ic128ih28oc128kh3sh2ph1 precision=bf16 layout=nhwc dtype=bf16 dir=bwd_d");
  const cuda::KernelAlgorithm& algorithm =
      *cuda::kernel_algorithm(find_algorithm(Device::Kind::cuda, "implicit_gemm_half_sm90"));
  cuda::LaunchPlan plan, lying;  // weights that lie are one filter, which all parts read
  for (const Config& config : algorithm.candidates(problem, device)) {
    cuda::LaunchPlan one = algorithm.plan(problem, device, config);
    (one.weights_lie ? lying : plan) = std::move(one);
  }
  ASSERT_FALSE(plan.more.empty() || lying.more.empty());
  EXPECT_EQ(lying.all_packed_bytes(), 2u * problem.weight_elements());
  std::size_t packed = cuda::in_lines(plan.packed_bytes());
  for (std::size_t i = 0; i + 1 < plan.more.size(); ++i)
    packed += cuda::in_lines(plan.more[i].packed_bytes());
  EXPECT_EQ(plan.all_packed_bytes(), packed + plan.more.back().packed_bytes());
  EXPECT_EQ(plan.workspace_bytes(), 0u);
  plan.workspace = {{cuda::Operand::x_nhwc, 300}};
  plan.more.front().workspace = {{cuda::Operand::x_nhwc, 600}};
  EXPECT_EQ(plan.workspace_bytes(), 768u);
}

INSTANTIATE_TEST_SUITE_P(Targets, MemoryOfPlans, testing::Values("h200", "h100"),
                         [](const auto& target) { return std::string(target.param); });

}  // namespace
}  // namespace convtune::memory_of_plans_test
