// Which problems Winograd's convolution with vectors over output channels is for, and which configs of it are
// worth trying, best first.
#pragma once

#include <vector>

#include "contract/backend.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_geometry.h"

namespace convtune::cpu {

Support winograd_filters_supports(const ConvProblem& problem, const DeviceInfo& info);
WinogradFiltersConfig winograd_filters_smallest(const ConvProblem& problem, const DeviceInfo& info);
Support winograd_filters_accepts(const ConvProblem& problem, const DeviceInfo& info,
                                 const WinogradFiltersConfig& config);
std::vector<WinogradFiltersConfig> winograd_filters_candidates(const ConvProblem& problem,
                                                               const DeviceInfo& info);
// An estimate of its time, in core cycles over all threads.
double winograd_filters_cycles(const ConvProblem& problem, const DeviceInfo& info,
                               const WinogradFiltersConfig& config);

}  // namespace convtune::cpu
