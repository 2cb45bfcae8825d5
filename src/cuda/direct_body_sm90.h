// What `direct_body_sm90` compiles for a config: for the tests that compile without a GPU.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "cuda/compiler.h"
#include "cuda/kernels/direct_body_sm90.h"

namespace convtune::cuda {

// For a config that the algorithm accepts.
DirectBodySm90 direct_body_sm90_kernel(const Conv2dProblem& problem, const Config& config);
// The convolution's kernel, then the one that packs its weights.
CompileJob direct_body_sm90_job(const DirectBodySm90& kernel, const std::string& arch);

}  // namespace convtune::cuda
