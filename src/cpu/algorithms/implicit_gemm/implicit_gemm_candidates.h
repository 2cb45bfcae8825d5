// The implicit GEMM's search space: what it can run, which configs are worth trying, in which order.
#pragma once

#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"

namespace convtune::cpu {

Support implicit_gemm_supports(const ConvProblem& problem, const DeviceInfo& info);
Support implicit_gemm_accepts(const ConvProblem& problem, const DeviceInfo& info,
                              const ImplicitGemmConfig& config);

// Estimated time of a config, in core cycles over all threads.
double implicit_gemm_cycles(const ConvProblem& problem, const DeviceInfo& info,
                            const ImplicitGemmConfig& config);

// Valid configs, by ascending estimate of their time.
std::vector<ImplicitGemmConfig> implicit_gemm_candidates(const ConvProblem& problem, const DeviceInfo& info);

// The register tiles that a config multiplies by.
MultiplyKernels multiply_kernels(const ImplicitGemmKernels& kernels, const ConvProblem& problem,
                                 const ImplicitGemmConfig& config);

}  // namespace convtune::cpu
