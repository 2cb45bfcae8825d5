// The table of a CPU's costs (src/cpu/model/cpu_costs.h), fitted to candidates that were timed.
#pragma once

#include <string>
#include <vector>

#include "contract/backend.h"
#include "convtune/problem.h"

namespace convtune {

struct TimedCandidate {
  std::string name;  // the case's
  ConvProblem problem;
  const Algorithm* algorithm;
  Config config;
  double measured_us;
};

// Changes one row of the table after the other while that brings estimates nearer to the times, and prints
// the rows, those that changed with what they were, and how near estimates were and are.
void fit_cpu_costs(const std::vector<TimedCandidate>& timed, const DeviceInfo& info);

}  // namespace convtune
