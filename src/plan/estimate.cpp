// Candidates compiled for a target, what each would launch, and the model's time for it (time_model.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/quoted.h"
#include "cuda/launch/dry_run.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/target_of.h"
#include "model/time_model.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "plan/kernel_compiler.h"
#include "plan/planner.h"

namespace convtune {
namespace {

void estimate(CandidateEstimate& one, const ConvProblem& problem, const Target& target,
              const cuda::KernelAlgorithm& algorithm) {
  const DeviceInfo device = device_of(target);
  const TimeEstimate time =
      estimate_time(target, algorithm.work(problem, device, one.config),
                    {one.threads, one.spill_bytes, static_cast<double>(one.blocks), one.occupancy.blocks});
  one.estimate_us = time.us + algorithm.later_parts_us(problem, device, one.config);
  one.bound = time.bound;
}

// Each algorithm's next best guess in turns, until the limit.
std::vector<cuda::Candidate> dealt(const std::vector<std::pair<const Algorithm*, std::vector<Config>>>& all,
                                   std::size_t limit) {
  std::vector<cuda::Candidate> candidates;
  for (std::size_t i = 0;; ++i) {
    bool any = false;
    for (const auto& [algorithm, configs] : all)
      if (i < configs.size() && candidates.size() < limit) {
        candidates.push_back({algorithm, configs[i]});
        any = true;
      }
    if (!any) return candidates;
  }
}

void fill(CandidateEstimate& one, const cuda::DryRun& run, const ConvProblem& problem, const Target& target,
          const Algorithm& algorithm) {
  one.failure = run.failure;
  if (!one.failure.empty()) return;
  const cuda::Launch& launch = run.launch;
  static_cast<Resources&>(one) = launch;
  one.occupancy = occupancy(target, {launch.threads, launch.registers, launch.smem_bytes});
  if (one.occupancy.blocks == 0)
    one.failure =
        fmt::format("not one block fits the target: {} threads, {} registers, {} bytes of shared memory",
                    launch.threads, launch.registers, launch.smem_bytes);
  if (!one.failure.empty()) return;
  const cuda::KernelAlgorithm& kernel = *cuda::kernel_algorithm(algorithm);
  const cuda::LaunchPlan plan = kernel.plan(problem, device_of(target), one.config);
  one.workspace_bytes = plan.workspace_bytes(), one.packed_bytes = plan.all_packed_bytes();
  estimate(one, problem, target, kernel);
}

}  // namespace

DeviceInfo device_of(const Target& target) {
  DeviceInfo info;
  info.device = {Device::Kind::cuda, 0};
  info.name = target.product;
  info.isa = isa_of(target.capability);
  info.capability = target.capability;
  info.units = target.multiprocessors;
  info.l2_bytes = target.l2_bytes;
  info.fingerprint = "target|" + target.name;
  return info;
}

std::vector<CandidateEstimate> estimate_candidates(const ConvProblem& problem, const Target& target,
                                                   const std::vector<cuda::Candidate>& candidates,
                                                   int processes, double seconds_each) {
  const auto runs = cuda::dry_run(problem, device_of(target), candidates, processes, seconds_each);
  std::vector<CandidateEstimate> estimates;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    CandidateEstimate one;
    one.algorithm = candidates[i].algorithm->name();
    one.config = candidates[i].config;
    fill(one, runs[i], problem, target, *candidates[i].algorithm);
    estimates.push_back(std::move(one));
  }
  return estimates;
}

TargetPlan plan_for_target(const ConvProblem& problem, const Target& target,
                           const TargetPlanOptions& options) {
  validate(problem);
  require_kernel_compiler("candidates cannot be compiled for a target");
  TargetPlan plan;
  plan.problem = resolve(problem, Precision::tf32);
  const DeviceInfo device = device_of(target);
  if (!options.algorithm.empty()) find_algorithm(Device::Kind::cuda, options.algorithm);

  std::vector<std::pair<const Algorithm*, std::vector<Config>>> all;
  std::int64_t configs = 0;
  for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
    if (algorithm->vendor() || algorithm->reference()) continue;
    if (!options.algorithm.empty() && algorithm->name() != options.algorithm) continue;
    if (const Support support = algorithm->supports(plan.problem, device); !support) {
      plan.refusals.emplace_back(algorithm->name(), support.reason());
      continue;
    }
    if (const std::string remark = algorithm->remark(plan.problem); !remark.empty())
      plan.remarks.emplace_back(algorithm->name(), remark);
    all.emplace_back(algorithm, algorithm->candidates(plan.problem, device));
    configs += static_cast<std::int64_t>(all.back().second.size());
  }
  if (configs == 0) {
    std::string reasons;
    for (const auto& [name, why] : plan.refusals) reasons += fmt::format("\n  {}: {}", name, why);
    throw Error(ErrorKind::unsupported, fmt::format("no algorithm of ours runs {} on {}:{}",
                                                    to_string(problem), target.name, reasons));
  }
  const auto candidates = dealt(all, static_cast<std::size_t>(std::max<std::int64_t>(options.candidates, 1)));
  plan.not_tried = configs - static_cast<std::int64_t>(candidates.size());
  plan.candidates =
      estimate_candidates(plan.problem, target, candidates, options.processes, options.seconds_each);
  std::stable_sort(plan.candidates.begin(), plan.candidates.end(),
                   [](const CandidateEstimate& a, const CandidateEstimate& b) {
                     if (a.failure.empty() != b.failure.empty()) return a.failure.empty();
                     return a.estimate_us < b.estimate_us;
                   });
  return plan;
}

}  // namespace convtune
