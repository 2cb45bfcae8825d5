// The search space of Winograd's convolution: what it can run, within which precision, which configs are
// worth trying, in which order.
#pragma once

#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/algorithms/winograd/winograd_geometry.h"

namespace convtune::cpu {

WinogradConfig winograd_smallest(const ConvProblem& problem, const DeviceInfo& info);
Support winograd_accepts(const ConvProblem& problem, const DeviceInfo& info, const WinogradConfig& config);

// Estimates a config's time in core cycles over all threads.
double winograd_cycles(const ConvProblem& problem, const DeviceInfo& info, const WinogradConfig& config);

// Valid configs, by ascending estimate of their time. A few dozen.
std::vector<WinogradConfig> winograd_candidates(const ConvProblem& problem, const DeviceInfo& info);

}  // namespace convtune::cpu
