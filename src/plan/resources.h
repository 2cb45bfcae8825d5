// Computes the GPU resources of a config's kernel: the winner's for reports, and for the rules of the last
// stage.
#pragma once

#include <optional>

#include "contract/backend.h"
#include "convtune/tuner.h"

namespace convtune {

// By the compiler, which has compiled it before, for the limits of `target`, or of the device. Nothing for
// what compiles no kernel of its own for a GPU.
std::optional<Resources> resources_of(const Algorithm& algorithm, const Config& config,
                                      const ConvProblem& problem, const DeviceInfo& device,
                                      const std::optional<Target>& target = {});

}  // namespace convtune
