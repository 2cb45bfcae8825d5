// Which problems Winograd's convolution along one axis is for, and which configs of it are worth trying, best
// first.
#pragma once

#include <vector>

#include "contract/backend.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_geometry.h"

namespace convtune::cpu {

Support winograd_rows_supports(const ConvProblem& problem, const DeviceInfo& info);
WinogradRowsConfig winograd_rows_smallest(const ConvProblem& problem, const DeviceInfo& info);
Support winograd_rows_accepts(const ConvProblem& problem, const DeviceInfo& info,
                              const WinogradRowsConfig& config);
std::vector<WinogradRowsConfig> winograd_rows_candidates(const ConvProblem& problem, const DeviceInfo& info);
// An estimate of its time, in core cycles over all threads.
double winograd_rows_cycles(const ConvProblem& problem, const DeviceInfo& info,
                            const WinogradRowsConfig& config);

}  // namespace convtune::cpu
