// The direct convolution's search space: what it can run, which configs are worth trying, in which
// order.
#pragma once

#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/algorithms/direct/direct_geometry.h"

namespace convtune::cpu {

Support direct_supports(const ConvProblem& problem, const DeviceInfo& info);
DirectConfig direct_smallest(const ConvProblem& problem, const DeviceInfo& info);
Support direct_accepts(const ConvProblem& problem, const DeviceInfo& info, const DirectConfig& config);

// Estimated time of a config, in core cycles over all threads.
double direct_cycles(const ConvProblem& problem, const DeviceInfo& info, const DirectConfig& config);

// Valid configs, by ascending estimate of their time. A few hundred.
std::vector<DirectConfig> direct_candidates(const ConvProblem& problem, const DeviceInfo& info);

}  // namespace convtune::cpu
