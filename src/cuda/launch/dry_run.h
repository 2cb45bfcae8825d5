// Candidates compiled for a device that need not be here, and what each would launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/backend.h"
#include "convtune/target.h"
#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

struct Candidate {
  const Algorithm* algorithm;
  Config config;
};

// The kernel of a run(): what the compiler says of it, and how it is launched.
struct Launch : Resources {  // without the occupancy
  std::string kernel;
};
struct DryRun {
  Launch launch;
  std::string failure;  // not empty: why there is no launch
};

Launch launch_of(const LaunchPlan& plan, const CompiledModule& module);

// `processes` compile at once, each for at most `seconds_each`. Throws Error{unsupported} without NVRTC.
std::vector<DryRun> dry_run(const ConvProblem& problem, const DeviceInfo& device,
                            const std::vector<Candidate>& candidates, int processes, double seconds_each);

}  // namespace convtune::cuda
