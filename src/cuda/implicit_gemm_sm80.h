// What `implicit_gemm_sm80` compiles for a config: for the tests that compile without a GPU.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "cuda/compiler.h"
#include "cuda/kernels/implicit_gemm_sm80.h"

namespace convtune::cuda {

// For a config that the algorithm accepts. Its `problem` is whole, whether the kernel is specialized or not.
ImplicitGemmSm80 implicit_gemm_sm80_kernel(const Conv2dProblem& problem, const Config& config);
// The convolution's kernel, then the one that packs its weights.
CompileJob implicit_gemm_sm80_job(const ImplicitGemmSm80& kernel, const std::string& arch);

}  // namespace convtune::cuda
