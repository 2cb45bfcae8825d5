// What `direct_patch_sm90` compiles for a config: for the tests that compile without a GPU.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "cuda/compiler.h"
#include "cuda/kernels/direct_patch_sm90.h"

namespace convtune::cuda {

// For a config that the algorithm accepts.
DirectPatchSm90 direct_patch_sm90_kernel(const Conv2dProblem& problem, const Config& config);
// The convolution's kernel, then the one that packs its weights.
CompileJob direct_patch_sm90_job(const DirectPatchSm90& kernel, const std::string& arch);

}  // namespace convtune::cuda
