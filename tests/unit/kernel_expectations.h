// What the tests of our kernels share that need no GPU: one that is elsewhere, problems for tensor cores, and
// what is expected of every compiled kernel.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "convtune/cases.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compile_all.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/target.h"
#include "plan/estimate.h"
#include "problem/config.h"

namespace convtune {

// Those with GPUs that the built-in targets are, or are like.
constexpr ComputeCapability kCapabilities[] = {{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {12, 0}};

inline DeviceInfo gpu(ComputeCapability capability = {9, 0}) {
  return device_of(typical_target(capability, 132));
}

// A built-in case or a line; in TF32 where it does not say.
inline Conv2dProblem tf32(const std::string& text) {
  Conv2dProblem problem = find_problem(text);
  if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
  return problem;
}

// What a config means for a problem, where the problem and the choices are all of it.
template <class Kernel>
Kernel kernel_of(const Conv2dProblem& problem, const Config& config) {
  return from_config(config, Kernel{.conv = cuda::extents_of(problem)});
}

inline cuda::LaunchPlan plan_of(const Algorithm& algorithm, const Conv2dProblem& problem,
                                const Config& config, ComputeCapability capability = {9, 0}) {
  return cuda::kernel_algorithm(algorithm)->plan(problem, gpu(capability), config);
}
inline cuda::CompileJob job_of(const Algorithm& algorithm, const Conv2dProblem& problem, const Config& config,
                               ComputeCapability capability = {9, 0}) {
  const cuda::LaunchPlan plan = plan_of(algorithm, problem, config, capability);
  return cuda::compile_job(plan, plan.configs.front());
}

// Compiled without spills, all shared memory asked for at the launch, and with registers for so many threads
// of a multiprocessor.
inline void expect_compiles(const std::vector<cuda::CompileJob>& jobs, const std::vector<int>& threads) {
  const std::vector<cuda::CompileResult> results = cuda::compile_all(jobs, 2, 60);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_TRUE(results[i].module) << results[i].failure;
    const cuda::KernelResources& resources = results[i].module->kernels[0];
    const std::string name = jobs[i].arch + " " + resources.kernel;
    EXPECT_EQ(resources.spill_bytes, 0) << name;
    EXPECT_LE(resources.stack_bytes, 16) << name;  // a frame, and no array
    EXPECT_EQ(resources.static_smem_bytes, 0) << name;
    EXPECT_LE(resources.registers * threads[i], 65536) << name;
    // ptxas says so where it had to serialise the products of warpgroups.
    EXPECT_EQ(results[i].module->log.find("serializ"), std::string::npos) << results[i].module->log;
  }
}

}  // namespace convtune
