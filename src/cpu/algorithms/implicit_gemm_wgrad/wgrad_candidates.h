// The search space of the gradient of weights: what it can run, which configs are worth trying, in which
// order.
#pragma once

#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_geometry.h"

namespace convtune::cpu {

Support wgrad_supports(const ConvProblem& problem, const DeviceInfo& info);
Support wgrad_accepts(const ConvProblem& problem, const DeviceInfo& info, const WgradConfig& config);

// A config's estimated time, in core cycles over all threads.
double wgrad_cycles(const ConvProblem& problem, const DeviceInfo& info, const WgradConfig& config);

// Valid configs, by ascending estimate of their time.
std::vector<WgradConfig> wgrad_candidates(const ConvProblem& problem, const DeviceInfo& info);

// With the register tile of the config's instruction set, which this build has.
WgradGeometry wgrad_geometry(const ConvProblem& problem, const WgradConfig& config);

}  // namespace convtune::cpu
