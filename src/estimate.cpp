// plan_for_target(), and its model. A run takes as long as its slowest term, and a part of the others that
// the slowest does not hide:
//
//   memory         compulsory bytes over the bandwidth
//   tensor cores   the config's own products (its padding too) over the peak; more where the last wave of
//                  blocks leaves multiprocessors idle, and where few warps hide little latency
//   issue          instructions over four a cycle and multiprocessor: a tensor instruction of 2048 flop
//                  with what feeds it, or one for 32 multiply-adds
//   shared memory  what a block keeps there, written once and read twice, at 128 bytes a cycle
//   spills         stored and loaded by each thread, at the bandwidth of L2 (three times that of memory)
//
// The constants are guesses of the right size. The order that they make has not been held against measured
// times yet.
#include "estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "algorithms.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "quoted.h"
#include "target.h"

namespace convtune {
namespace {

constexpr double kLaunchUs = 3, kNotHidden = 0.2;
constexpr double kWarpsThatHide = 8;  // on a multiprocessor: two a scheduler
constexpr double kFlopsOfATensorWarp = 2048, kInstructionsWithIt = 4, kIssueACycle = 4;
constexpr double kSmemBytesACycle = 128, kSmemPasses = 3, kL2OverMemory = 3;

Ceilings ceilings_of(const Target& target) {
  Ceilings ceilings;
  ceilings.flops_per_second = 1e12 * target.tf32_tflops;
  ceilings.bytes_per_second = 1e9 * target.bandwidth_gb_s;
  ceilings.fp32_flops_per_second = 1e12 * target.fp32_tflops();
  ceilings.half_flops_per_second = 1e12 * target.fp16_tflops;
  return ceilings;
}

// Multiplies on the ordinary units.
bool on_cuda_cores(const Algorithm& algorithm) {
  return algorithm.name().find("fma") != std::string_view::npos;
}

void estimate(CandidateEstimate& one, const Conv2dProblem& problem, const Target& target,
              const Algorithm& algorithm) {
  constexpr double kNoLimit = 1e30;
  Ceilings compute = ceilings_of(target);
  compute.bytes_per_second = kNoLimit;
  if (on_cuda_cores(algorithm)) compute.flops_per_second = compute.fp32_flops_per_second;
  double products_us = algorithm.bound_us(problem, device_of(target), one.config, compute);
  if (products_us <= 0) products_us = 1e6 * problem.flops() / compute.flops_per_second;
  const double flops = products_us * 1e-6 * compute.flops_per_second;

  const double at_once = static_cast<double>(target.multiprocessors) * one.occupancy.blocks;
  const double blocks = static_cast<double>(one.blocks);
  // Of a grid that fits at once, the busiest multiprocessor counts; else whole waves.
  const double rounded = blocks <= at_once
                             ? std::ceil(blocks / target.multiprocessors) * target.multiprocessors
                             : std::ceil(blocks / at_once) * at_once;
  const double idle = rounded / blocks,
               resident = std::min<double>(one.occupancy.blocks, std::ceil(blocks / target.multiprocessors));
  const double warps = resident * std::ceil(one.threads / static_cast<double>(target.warp_size));
  const double hidden = std::min(1.0, 0.5 + 0.5 * warps / kWarpsThatHide);

  const double cycles_a_us = target.clock_mhz * target.multiprocessors;
  const double instructions = on_cuda_cores(algorithm) ? 1.5 * flops / (2 * target.warp_size)
                                                       : kInstructionsWithIt * flops / kFlopsOfATensorWarp;
  const double bandwidth = 1e3 * target.bandwidth_gb_s;  // bytes a microsecond
  const std::array<std::pair<double, const char*>, 5> terms = {{
      {problem.bytes() / bandwidth, "memory"},
      {products_us * idle / hidden, on_cuda_cores(algorithm) ? "multiply-adds" : "tensor cores"},
      {instructions * idle / (kIssueACycle * cycles_a_us), "issue"},
      {kSmemPasses * static_cast<double>(one.smem_bytes) * blocks * idle / (kSmemBytesACycle * cycles_a_us),
       "shared memory"},
      {static_cast<double>(one.spill_bytes) * one.threads * blocks / (kL2OverMemory * bandwidth), "spills"},
  }};
  const auto& largest = *std::max_element(terms.begin(), terms.end());
  double all = 0;
  for (const auto& [us, name] : terms) all += us;
  one.estimate_us = kLaunchUs + largest.first + kNotHidden * (all - largest.first);
  one.bound = largest.second;
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

void fill(CandidateEstimate& one, const cuda::Rehearsed& rehearsed, const Conv2dProblem& problem,
          const Target& target, const Algorithm& algorithm) {
  one.failure = rehearsed.failure;
  if (rehearsed.launches.empty()) {
    if (one.failure.empty()) one.failure = "it launches nothing";
    return;
  }
  // The kernel that does the work, where others prepare or finish.
  const cuda::Launch& launch = *std::max_element(rehearsed.launches.begin(), rehearsed.launches.end(),
                                                 [](const cuda::Launch& a, const cuda::Launch& b) {
                                                   return a.blocks * a.threads < b.blocks * b.threads;
                                                 });
  one.registers = launch.registers, one.threads = launch.threads;
  one.spill_bytes = launch.spill_bytes, one.smem_bytes = launch.smem_bytes, one.blocks = launch.blocks;
  one.occupancy = occupancy(target, {launch.threads, launch.registers, launch.smem_bytes});
  if (one.occupancy.blocks == 0)
    one.failure =
        fmt::format("not one block fits the target: {} threads, {} registers, {} bytes of shared memory",
                    launch.threads, launch.registers, launch.smem_bytes);
  else
    estimate(one, problem, target, algorithm);
}

}  // namespace

DeviceInfo device_of(const Target& target) {
  DeviceInfo info;
  info.device = {Device::Kind::cuda, 0};
  info.name = target.product;
  info.isa = isa_of(target.capability_major, target.capability_minor);
  info.units = target.multiprocessors;
  info.l2_bytes = target.l2_bytes;
  info.fingerprint = "target|" + target.name;
  return info;
}

std::vector<CandidateEstimate> estimate_candidates(const Conv2dProblem& problem, const Target& target,
                                                   const std::vector<cuda::Candidate>& candidates,
                                                   int processes, double seconds_each) {
  const auto rehearsed = cuda::rehearse(problem, device_of(target), candidates, processes, seconds_each);
  std::vector<CandidateEstimate> estimates;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    CandidateEstimate one;
    one.algorithm = candidates[i].algorithm->name();
    one.config = candidates[i].config;
    fill(one, rehearsed[i], problem, target, *candidates[i].algorithm);
    estimates.push_back(std::move(one));
  }
  return estimates;
}

TargetPlan plan_for_target(const Conv2dProblem& problem, const Target& target,
                           const TargetPlanOptions& options) {
  validate(problem);
  if (!cuda::has_nvrtc())
    throw Error(ErrorKind::unsupported, "candidates cannot be compiled for a target: NVRTC is not found (" +
                                            cuda::describe_nvrtc() + ")");
  TargetPlan plan;
  plan.problem = problem;
  if (problem.precision == Precision::automatic) plan.problem.precision = Precision::tf32;
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
