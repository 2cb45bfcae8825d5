// Planning for a GPU that is described instead of present: candidates are really compiled for it, so that
// resources and occupancy are facts; times are a model's estimates and say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/target.h"

namespace convtune {

struct CandidateEstimate : Resources {
  std::string algorithm;
  Config config;
  double estimate_us = 0;
  // Bytes that a run takes beside its tensors (Convolution::workspace_bytes), and that packed weights take.
  std::size_t workspace_bytes = 0, packed_bytes = 0;
  // Names the resource that it waits for most, by the model: "memory", "tensor cores", "multiply-adds",
  // "issue", "shared memory", "L2", "latency"; "roofline" where it knows no more than that.
  std::string bound;
  std::string failure;  // why it does not compile or fit; the numbers above mean nothing then
};

struct TargetPlan {
  ConvProblem problem;                                        // precision resolved
  std::vector<CandidateEstimate> candidates;                  // best estimate first, failures last
  std::vector<std::pair<std::string, std::string>> refusals;  // algorithm, why it steps aside
  std::vector<std::pair<std::string, std::string>> remarks;   // algorithm, what it does beside its kernel
  std::int64_t not_tried = 0;                                 // configs beyond the limit
};

struct TargetPlanOptions {
  std::string algorithm;  // only this one; empty: all
  std::int64_t candidates =
      32;             // compiled at most, shared by the algorithms, each algorithm's best guesses first
  int processes = 2;  // that compile at once
  double seconds_each = 30;
};

// Throws Error{unsupported} without NVRTC, or where nothing supports the problem on the target.
TargetPlan plan_for_target(const ConvProblem& problem, const Target& target,
                           const TargetPlanOptions& options = {});

}  // namespace convtune
