// What `direct_stem_sm80` compiles for a config: for the tests that compile without a GPU.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "cuda/compiler.h"
#include "cuda/kernels/direct_stem_sm80.h"

namespace convtune::cuda {

// For a config that the algorithm accepts.
DirectStemSm80 direct_stem_sm80_kernel(const Conv2dProblem& problem, const Config& config);
// Wavefronts of a load that reads a group's pixels: 1 where no two threads of a warp want different words of
// one bank. The average over the groups.
double direct_stem_sm80_wavefronts(const DirectStemSm80& kernel);
// The convolution's kernel, then the one that packs its weights.
CompileJob direct_stem_sm80_job(const DirectStemSm80& kernel, const std::string& arch);

}  // namespace convtune::cuda
