// Every activation in every kernel of ours, without a GPU, where registers are few: the first guess of a
// layer as they are in networks. (Of small problems all of them are compiled in kernel_algorithms_test.cpp.)
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernel_expectations.h"
#include "problem/activation.h"

namespace convtune::activations_test {
namespace {

TEST(Activations, AreTakenByEveryKernel) {
  for (const cuda::KernelAlgorithm* algorithm : own_algorithms())
    for (const ConvProblem& layer : supported(*algorithm, gpu(), suite_problems(256)))
      for (const ConvProblem& problem : with_each_activation(layer)) {
        const Support support = algorithm->supports(problem, gpu());
        EXPECT_TRUE(support) << algorithm->name() << " " << to_string(problem) << ": " << support.reason();
      }
}

// The longest formula, and one with a parameter.
TEST(Activations, CompileWhereRegistersAreFew) {
  const auto layers = suite_problems(256, {"stem", "body", "depthwise", "half", "medical"});
  for (const cuda::KernelAlgorithm* algorithm : own_algorithms()) {
    const std::vector<ConvProblem> taken = supported(*algorithm, gpu(), layers);
    if (taken.empty()) continue;  // it has other suites
    const ConvProblem& layer = taken.front();
    std::vector<PlannedKernel> kernels;
    for (ConvProblem problem : with_each_activation(layer))
      if (problem.activation == Activation::gelu_erf || problem.activation == Activation::leaky_relu)
        kernels.push_back({problem, algorithm->candidates(problem, gpu()).front()});
    expect_compiles_as_planned(*algorithm, kernels);
  }
}

// The kernel that is not compiled for the problem is told the bounds of a clip, which none and ReLU are, too.
TEST(Activations, OfTheGeneralKernelAreFew) {
  const cuda::KernelAlgorithm& gemm = *cuda::kernel_algorithm(cuda::implicit_gemm_sm80());
  std::set<std::string> kernels;
  for (const ConvProblem& problem : with_each_activation(tf32("resnet_3x3_128"))) {
    const Config config = gemm.candidates(problem, gpu()).back();
    ASSERT_FALSE(gemm.compiles(config));
    kernels.insert(gemm.plan(problem, gpu(), config).configs.front());
  }
  EXPECT_EQ(kernels.size(), all_activations().size() - 2);
}

}  // namespace
}  // namespace convtune::activations_test
