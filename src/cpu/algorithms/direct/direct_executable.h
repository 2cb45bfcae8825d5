// The direct convolution ready for one problem: windows are staged, multiplied and stored, and what is not
// finite is repaired.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/algorithms/direct/direct_geometry.h"

namespace convtune::cpu {

std::unique_ptr<Executable> direct_executable(const ConvProblem& problem, const DirectConfig& config,
                                              const DeviceInfo& on);

}  // namespace convtune::cpu
