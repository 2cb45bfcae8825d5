// An implicit GEMM ready for one problem: staging, products, stores, and the repair of what is not finite.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"

namespace convtune::cpu {

std::unique_ptr<Executable> implicit_gemm_executable(const ConvProblem& problem,
                                                     const ImplicitGemmConfig& config, int threads);

}  // namespace convtune::cpu
