// Every kernel of the table without a GPU: it compiles as planned. What every algorithm owes is in
// algorithms_test.cpp, what is special to one in the test of its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cuda/launch/lying_plans.h"
#include "kernel_expectations.h"

namespace convtune::kernel_algorithms_test {
namespace {

class KernelAlgorithms : public testing::TestWithParam<const cuda::KernelAlgorithm*> {
 protected:
  const cuda::KernelAlgorithm& algorithm() { return *GetParam(); }
  // Problems that it supports on a GPU of such a capability.
  std::vector<ConvProblem> taken(std::vector<ConvProblem> problems, ComputeCapability capability = {9, 0}) {
    return supported(algorithm(), gpu(capability), std::move(problems));
  }
  static std::vector<ConvProblem> small_and_real() {
    std::vector<ConvProblem> problems = small_problems();
    for (const ConvProblem& problem : suite_problems(256)) problems.push_back(problem);
    return problems;
  }
};

// Packing reads the tensors that come, which may end where a mapping of memory does: tiles of filters
// that the last one does not fill have zeros.
TEST_P(KernelAlgorithms, PacksNoMoreWeightsAndBiasesThanThereAre) {
  for (const ComputeCapability capability : {ComputeCapability{8, 0}, {9, 0}})
    for (const ConvProblem& problem : taken(small_and_real(), capability))
      for (const Config& config : spread(algorithm().candidates(problem, gpu(capability)), 20)) {
        const cuda::LaunchPlan plan = algorithm().plan(problem, gpu(capability), config);
        std::int64_t weights = problem.weight_elements(), biases = problem.bias_elements();
        for (const cuda::Step& step : plan.pack)
          if (const auto* gathered = std::get_if<cuda::Gathered>(&step))
            (gathered->to == cuda::Operand::w_gathered ? weights : biases) = gathered->what.elements();
        if (plan.gathers) weights = plan.gathers->what.elements();
        // Without a bias none is read.
        if (!problem.bias) biases = plan.packed.biases;
        EXPECT_LE(plan.packed.weights, weights) << to_string(problem) << " with " << to_string(config);
        EXPECT_LE(plan.packed.biases, biases) << to_string(problem) << " with " << to_string(config);
      }
}

// First guesses on every capability, of small problems in both forms and with each activation, and configs
// from anywhere in the lists of layers.
TEST_P(KernelAlgorithms, CompilesAsPlanned) {
  std::vector<PlannedKernel> kernels;
  for (const ComputeCapability capability : kCapabilities) {
    const std::vector<ConvProblem> layers = taken(suite_problems(256), capability);
    if (layers.empty()) continue;
    const ConvProblem& problem = layers[kernels.size() % layers.size()];
    const std::vector<Config> configs = algorithm().candidates(problem, gpu(capability));
    kernels.push_back({problem, configs.front(), capability});
    Picker pick(kernels.size());
    kernels.push_back(
        {problem, configs[static_cast<std::size_t>(pick(0, std::ssize(configs) - 1))], capability});
  }
  for (const ConvProblem& problem : spread(taken(small_problems()), 4)) {
    const Config config = algorithm().candidates(problem, gpu()).front();
    kernels.push_back({problem, config});
    kernels.push_back({problem, config, {9, 0}, true});
  }
  for (const ConvProblem& problem : taken(with_each_activation(taken(small_problems()).front())))
    kernels.push_back({problem, algorithm().candidates(problem, gpu()).front()});
  EXPECT_GE(kernels.size(), 8u);
  expect_compiles_as_planned(algorithm(), kernels);
}

// A layer on frames with a cache and without: its weights are packed once where its config is the same.
TEST(PackedOrder, IsThatOfWeightsAndConfigAlone) {
  const std::string line =
      "mb1ic64id1ih30iw52oc64kd3kh3kw3pd2ph1pw1 pad_back=0 layout=nhwc dtype=bf16 precision=bf16";
  const ConvProblem first = parse_problem(line), next = parse_problem(line + " cache=2");
  ConvProblem other = next;
  other.dtype = DType::f16;
  for (const cuda::KernelAlgorithm* algorithm : own_algorithms()) {
    if (!algorithm->supports(next, gpu())) continue;
    std::set<std::string> orders;
    for (const Config& config : algorithm->candidates(next, gpu())) {
      const std::string order = algorithm->packed_order(next, gpu(), config);
      EXPECT_TRUE(order.starts_with(algorithm->name()));
      EXPECT_EQ(algorithm->packed_order(first, gpu(), config), order);
      EXPECT_NE(algorithm->packed_order(other, gpu(), config), order);
      orders.insert(order);
    }
    EXPECT_GT(orders.size(), 1U);
    return;
  }
  FAIL() << "no kernel takes a cache";
}

// A transposed layer packs the filter of a layer of the same numbers in another order, but for the filter as
// it lies, which is one memory for both.
TEST(PackedOrder, IsThatOfTransposedLayersOnTheirOwn) {
  const std::string numbers = "ic64ih16oc64kh3ph1 layout=nhwc dtype=bf16 precision=bf16 bias=0";
  const ConvProblem layer = parse_problem("mb2" + numbers),
                    transposed = parse_problem("mb2" + numbers + " dir=bwd_d"),
                    larger = parse_problem("mb4" + numbers + " dir=bwd_d");
  int compared = 0;
  for (const cuda::KernelAlgorithm* algorithm : own_algorithms()) {
    SCOPED_TRACE(algorithm->name());
    if (!algorithm->supports(layer, gpu()) || !algorithm->supports(transposed, gpu())) continue;
    for (const Config& config : algorithm->candidates(transposed, gpu())) {
      const std::string order = algorithm->packed_order(transposed, gpu(), config);
      if (order.empty()) continue;
      if (algorithm->accepts(layer, gpu(), config) && order == cuda::kLyingOrder) {
        EXPECT_EQ(algorithm->packed_order(layer, gpu(), config), order) << "the filter as it lies";
      } else if (algorithm->accepts(layer, gpu(), config)) {
        ++compared;
        EXPECT_NE(algorithm->packed_order(layer, gpu(), config), order);
      }
      if (algorithm->accepts(larger, gpu(), config)) {
        EXPECT_EQ(algorithm->packed_order(larger, gpu(), config), order);
      }
    }
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, KernelAlgorithms, testing::ValuesIn(own_algorithms()),
                         [](const auto& info) { return std::string(info.param->name()); });

}  // namespace
}  // namespace convtune::kernel_algorithms_test
