// The depthwise convolution's search space: what it can run, which configs are worth trying, in which order.
#pragma once

#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/algorithms/direct_depthwise/depthwise_geometry.h"

namespace convtune::cpu {

Support depthwise_supports(const ConvProblem& problem, const DeviceInfo& info);
Support depthwise_accepts(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config);

// Estimated time of a config, in core cycles over all threads.
double depthwise_cycles(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config);

// Valid configs, by ascending estimate of their time.
std::vector<DepthwiseConfig> depthwise_candidates(const ConvProblem& problem, const DeviceInfo& info);

}  // namespace convtune::cpu
