// AMX's search space: what it can run, which configs are worth trying, in which order.
#pragma once

#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/algorithms/amx/amx_geometry.h"
#include "cpu/launch/cpu_algorithm.h"

namespace convtune::cpu {

// The algorithm as data. It refuses processors without AMX; where tiles are modelled, `supports` and
// `executable` are others.
CpuAlgorithmParts<AmxConfig> amx_parts();

// Whatever the processor has: what problem it is for.
Support amx_takes(const ConvProblem& problem, const DeviceInfo& info);
Support amx_accepts(const ConvProblem& problem, const DeviceInfo& info, const AmxConfig& config);

// Estimates a config's time in core cycles over all threads.
double amx_cycles(const ConvProblem& problem, const DeviceInfo& info, const AmxConfig& config);

// Valid configs, by ascending estimate of their time.
std::vector<AmxConfig> amx_candidates(const ConvProblem& problem, const DeviceInfo& info);

}  // namespace convtune::cpu
