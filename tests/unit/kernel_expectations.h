// Defines helpers of our kernels' tests that need no GPU: one that is elsewhere, refusals, configs from
// outside, and what is expected of every compiled kernel.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/algorithms/algorithms.h"
#include "cuda/compile/compile_all.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/dry_run.h"
#include "cuda/launch/extents.h"
#include "kernel_problems.h"
#include "model/target_of.h"
#include "plan/estimate_candidates.h"
#include "problem/config_fields.h"

namespace convtune {

// Computers with GPUs that the built-in targets are, or are like.
constexpr ComputeCapability kCapabilities[] = {{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {12, 0}};

inline DeviceInfo gpu(ComputeCapability capability = {9, 0}) {
  return device_of(typical_target(capability, 132));
}

// `base` with the fields of `changes`, which it must have.
inline Config changed(Config base, const Config& changes) {
  for (const auto& [name, value] : changes.values) {
    const auto field = std::ranges::find(base.values, name, [](const auto& one) { return one.first; });
    EXPECT_NE(field, base.values.end()) << name << " is no field of " << to_string(base);
    if (field != base.values.end()) field->second = value;
  }
  return base;
}

// Geometry of a config for a problem, where the problem and the choices are all of it. Fields that are
// not said have their defaults, so that a new one changes no test.
template <class Kernel>
Kernel kernel_of(const ConvProblem& problem, const Config& config) {
  const Kernel plain{.conv = cuda::extents_of(problem)};
  return from_config(changed(to_config(plain), config), plain);
}

// A problem that is refused, and words of the reason.
struct Refusal {
  std::string problem, words;
  ComputeCapability capability = {9, 0};
};
inline void expect_refusals(const Algorithm& algorithm, const std::vector<Refusal>& refusals) {
  for (const Refusal& one : refusals) {
    const std::string reason = algorithm.supports(tf32(one.problem), gpu(one.capability)).reason();
    EXPECT_NE(reason.find(one.words), std::string::npos) << one.problem << ": '" << reason << "'";
  }
}

// Changes of some fields ("stages=1 blocks=9") of a config that is accepted, with which it is not. What
// `good` does not say is as in the first candidate.
inline void expect_config_refusals(const Algorithm& algorithm, const ConvProblem& problem,
                                   const std::string& good, const std::vector<std::string>& changes) {
  const Config accepted = changed(algorithm.candidates(problem, gpu()).front(), parse_config(good));
  ASSERT_TRUE(algorithm.accepts(problem, gpu(), accepted)) << good;
  for (const std::string& change : changes) {
    const Config config = changed(accepted, parse_config(change));
    ASSERT_NE(config, accepted) << change;
    EXPECT_FALSE(algorithm.accepts(problem, gpu(), config)) << change;
  }
}

// The config for which `measure`, of what it means, is largest.
template <class Kernel, class Measure>
Config most(const ConvProblem& problem, const std::vector<Config>& configs, const Measure& measure) {
  return *std::max_element(configs.begin(), configs.end(), [&](const Config& a, const Config& b) {
    return measure(kernel_of<Kernel>(problem, a)) < measure(kernel_of<Kernel>(problem, b));
  });
}

// The config with the least registers to spare.
template <class Kernel>
Config tightest(const ConvProblem& problem, const std::vector<Config>& configs) {
  return most<Kernel>(problem, configs, [](const auto& a) { return a.registers() - a.register_limit(); });
}

struct PlannedKernel {
  ConvProblem problem;
  Config config;
  ComputeCapability capability = {9, 0};
  bool any_pointer = false;  // that form of it, where there is one
};
// Compiled without spills, into no more registers and shared memory than were planned, so that as many blocks
// as were planned share an SM.
inline void expect_compiles_as_planned(const cuda::KernelAlgorithm& algorithm,
                                       const std::vector<PlannedKernel>& kernels) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  std::vector<cuda::LaunchPlan> plans;
  std::vector<cuda::CompileJob> jobs;
  for (const PlannedKernel& one : kernels) {
    plans.push_back(algorithm.plan(one.problem, gpu(one.capability), one.config));
    const bool other = one.any_pointer && !plans.back().config_for_any_pointer.empty();
    jobs.push_back(compile_job(plans.back(),
                               other ? plans.back().config_for_any_pointer : plans.back().configs.front()));
  }
  const std::vector<cuda::CompileResult> results = cuda::compile_all(jobs, 2, 60);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::string name =
        jobs[i].arch + " " + to_string(kernels[i].problem) + " with " + to_string(kernels[i].config);
    ASSERT_TRUE(results[i].module) << name << ": " << results[i].failure;
    // A plan with several ways to be compiled is taken by the one that spills least.
    const bool again = results[i].module->kernels[0].spill_bytes > 0 && plans[i].configs.size() > 1;
    const cuda::CompiledModule module = again ? compile(plans[i]).module : *results[i].module;
    const cuda::KernelResources& resources = module.kernels[0];
    EXPECT_EQ(resources.spill_bytes, 0) << name;
    EXPECT_LE(resources.stack_bytes, 24) << name << ": a frame, and no array";
    EXPECT_EQ(resources.static_smem_bytes, 0) << name << ": all of it is asked for at the launch";
    EXPECT_LE(resources.registers, plans[i].most_registers) << name;
    const cuda::Launch launch = launch_of(plans[i], module);
    const Occupancy held = occupancy(target_of(gpu(kernels[i].capability)),
                                     {launch.threads, launch.registers, launch.smem_bytes});
    EXPECT_GE(held.blocks, plans[i].resident_is_a_guess ? 1 : plans[i].resident_blocks) << name;
    // ptxas says so where it had to serialise the products of warpgroups.
    EXPECT_EQ(module.log.find("serializ"), std::string::npos) << module.log;
  }
}

// Compiles each line's config with the least registers to spare and, of a kernel that is not for 9.0 alone,
// the first guess for 8.0 and any pointer.
template <class Kernel>
void expect_tightest_compile(const cuda::KernelAlgorithm& algorithm, const std::vector<std::string>& lines) {
  std::vector<PlannedKernel> kernels;
  for (const std::string& line : lines) {
    const ConvProblem problem = tf32(line);
    const std::vector<Config> configs = algorithm.candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << line;
    kernels.push_back({problem, tightest<Kernel>(problem, configs)});
    if (algorithm.name().ends_with("_sm90")) continue;
    const std::vector<Config> older = algorithm.candidates(problem, gpu({8, 0}));
    ASSERT_FALSE(older.empty()) << line << " on 8.0";
    kernels.push_back({problem, older.front(), {8, 0}, true});
  }
  expect_compiles_as_planned(algorithm, kernels);
}

}  // namespace convtune
