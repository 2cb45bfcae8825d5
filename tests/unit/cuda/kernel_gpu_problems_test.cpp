// Counts what kernel_gpu_test.cpp gives every kernel of the table, with the functions and the numbers of that
// test: here no GPU is needed, and there they are as many.
#include "gpu/kernel_gpu_problems.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernel_expectations.h"

namespace convtune::kernel_gpu_problems_test {
namespace {

// Kernels are listed within the test: a list at the start of the process would look for cuDNN before the
// tests of its absence say where.
TEST(KernelGpuProblems, AreEnoughForEveryKernelWhereItRuns) {
  for (const ComputeCapability capability : {ComputeCapability{8, 0}, {9, 0}, {12, 0}})
    for (const cuda::KernelAlgorithm* algorithm : own_algorithms()) {
      const DeviceInfo device = gpu(capability);
      if (algorithm->name().ends_with("_sm90") && !cuda::needs_sm90(device)) continue;
      SCOPED_TRACE(fmt::format("{} on {}.{}", algorithm->name(), capability.major, capability.minor));
      EXPECT_GE(supported(*algorithm, device, small_problems()).size(), 4u);
      EXPECT_FALSE(suite_layers(*algorithm, device, 2).empty());
      EXPECT_FALSE(repeated_layers(*algorithm, device).empty());
      const std::vector<ConvProblem> edges = edges_for(*algorithm, device);
      EXPECT_GE(edges.size(), kLeastEdges);
      const std::vector<ConvProblem> random = random_layers_for(*algorithm, device);
      EXPECT_GE(random.size(), kLeastRandomLayers);
      if (!is_for_weights(*algorithm, device)) {
        EXPECT_FALSE(large_problems(*algorithm, device).empty());
      }
    }
}

// The GPU's tests skip a kernel that has none of these only where its name says that it is for a 9.0.
TEST(KernelGpuProblems, AreSomeOnEveryCapabilityThatAKernelsNameSays) {
  for (const cuda::KernelAlgorithm* algorithm : own_algorithms())
    for (const ComputeCapability capability : kCapabilities) {
      const DeviceInfo device = gpu(capability);
      if (algorithm->name().ends_with("_sm90") && !cuda::needs_sm90(device)) continue;
      EXPECT_FALSE(supported(*algorithm, device, small_problems()).empty())
          << algorithm->name() << " on " << capability.major << "." << capability.minor;
    }
}

}  // namespace
}  // namespace convtune::kernel_gpu_problems_test
