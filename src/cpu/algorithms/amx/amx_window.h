// Staging: the input that one tile reads, copied into a core's cache with zeros for padding
// (amx_geometry.h has the order).
#pragma once

#include "cpu/algorithms/amx/amx_geometry.h"
#include "cpu/tile/elements.h"
#include "cpu/tile/tensor_kernels.h"

namespace convtune::cpu {

void stage_amx_window(const ConvProblem& problem, const AmxGeometry& geometry, const TensorKernels& kernels,
                      const OutputTile& tile, const void* x, Bf16* window);

}  // namespace convtune::cpu
