// A model's time for candidates that the caller chose: plan_for_target() with the choice made. For
// bench/model_rank, which holds the model against measured times.
#pragma once

#include <vector>

#include "convtune/estimate.h"
#include "cuda/launch/dry_run.h"

namespace convtune {

// A target as a device that algorithms can be asked about.
DeviceInfo device_of(const Target& target);

// In the candidates' order. The problem's precision must be resolved.
std::vector<CandidateEstimate> estimate_candidates(const ConvProblem& problem, const Target& target,
                                                   const std::vector<cuda::Candidate>& candidates,
                                                   int processes, double seconds_each);

}  // namespace convtune
