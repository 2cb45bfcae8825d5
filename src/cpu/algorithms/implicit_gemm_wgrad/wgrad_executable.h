// The gradient of weights ready for one problem: panels, products, and partial sums that become dw and dbias.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_geometry.h"

namespace convtune::cpu {

std::unique_ptr<Executable> wgrad_executable(const ConvProblem& problem, const WgradConfig& config,
                                             int threads);

}  // namespace convtune::cpu
