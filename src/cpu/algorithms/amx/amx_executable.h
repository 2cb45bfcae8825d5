// The convolution by AMX's tiles, ready for one problem.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/algorithms/amx/amx_geometry.h"
#include "cpu/algorithms/amx/amx_tiles.h"

namespace convtune::cpu {

// `kernels`: the processor's, or a test's model of them. `vector_bits`: of what reads x and finishes sums.
std::unique_ptr<Executable> amx_executable(const ConvProblem& problem, const AmxConfig& config, int threads,
                                           int vector_bits, const AmxKernels& kernels);

}  // namespace convtune::cpu
