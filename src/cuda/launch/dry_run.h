// Candidates compiled for a device that need not be here, and what each would launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "contract/backend.h"
#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

struct Candidate {
  const Algorithm* algorithm;
  Config config;
};

// The kernel of a run(): what the compiler says of it, and how it is launched.
struct Launch {
  std::string kernel;
  int registers = 0, threads = 0;                // a thread; of a block
  std::int64_t spill_bytes = 0, smem_bytes = 0;  // a thread; a block, static and dynamic
  std::int64_t blocks = 0;
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
