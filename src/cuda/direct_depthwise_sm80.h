// What `direct_depthwise_sm80` compiles for a config: for the tests that compile without a GPU.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "cuda/compiler.h"
#include "cuda/kernels/direct_depthwise_sm80.h"

namespace convtune::cuda {

// For a config that the algorithm accepts.
DirectDepthwiseSm80 direct_depthwise_sm80_kernel(const Conv2dProblem& problem, const Config& config);
// The convolution's kernel, then the one that packs its weights.
CompileJob direct_depthwise_sm80_job(const DirectDepthwiseSm80& kernel, const std::string& arch);

}  // namespace convtune::cuda
