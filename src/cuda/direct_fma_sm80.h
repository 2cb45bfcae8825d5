// What `direct_fma_sm80` compiles for a config: for the tests that compile without a GPU.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "cuda/compiler.h"
#include "cuda/kernels/direct_fma_sm80.h"

namespace convtune::cuda {

// For a config that the algorithm accepts.
// What a warp does for one strip: instructions, and wavefronts of shared memory, 128 bytes each.
struct DirectFmaWork {
  double instructions = 0, wavefronts = 0;
};
DirectFmaWork direct_fma_sm80_work(const DirectFmaSm80& kernel);

DirectFmaSm80 direct_fma_sm80_kernel(const Conv2dProblem& problem, const Config& config);
// The convolution's kernel, then the one that packs its weights.
CompileJob direct_fma_sm80_job(const DirectFmaSm80& kernel, const std::string& arch);

}  // namespace convtune::cuda
