// A plan's kernel measured by NVIDIA's profiler, Nsight Compute: where it is installed, and where this user
// may read the GPU's counters.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/metrics.h"

namespace convtune {

struct ProfileOptions {
  double seconds = 600;  // for all of it
  const std::atomic<bool>* cancel = nullptr;
};

struct Profile {
  std::string plan;                // the plan that ran: algorithm and config
  KernelMetrics metrics;           // of its kernel, every one that analyze() and refine() read
  std::vector<std::string> notes;  // which kernel it is where that is not plain; what ncu warned of
  bool interrupted = false;        // by `cancel`: there are no metrics
};

// Runs `command`, a program that prints what launch_for_profiler() returns, under ncu. Throws
// Error{unsupported} that says what to do where ncu is missing or counters are forbidden, and with the reason
// where the command fails.
Profile profile(const std::vector<std::string>& command, const ProfileOptions& options = {});

// Plans the problem (with the algorithm's first guess where no config is named, and as plan() does where no
// algorithm is), runs it a few times with random data and checks the answers. Returns a line for profile().
std::string launch_for_profiler(const ConvProblem& problem, Device device, const std::string& algorithm = {},
                                const Config& config = {});

}  // namespace convtune
