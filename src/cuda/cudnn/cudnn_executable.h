// A cuDNN plan that runs: weights in cuDNN's order, conversions of layout, workspaces.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cuda/cudnn/cudnn_offers.h"

namespace convtune::cuda {

// `plan` was made for this problem and form. Throws Error{unsupported} where there is no memory for what
// its runs need (cuda/workspace.h).
std::unique_ptr<Executable> cudnn_executable(const ConvProblem& problem, const DeviceInfo& device,
                                             const CudnnForm& form, std::shared_ptr<const CudnnPlan> plan);

}  // namespace convtune::cuda
