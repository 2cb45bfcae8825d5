// Staging: the input that one tile reads, copied into a core's cache with zeros for padding
// (amx_geometry.h has the order).
#pragma once

#include "cpu/amx/amx_geometry.h"
#include "cpu/elements.h"
#include "cpu/tensor_kernels.h"

namespace convtune::cpu {

void stage_amx_window(const ConvProblem& problem, const AmxGeometry& geometry, const TensorKernels& kernels,
                      const AmxTile& tile, const void* x, Bf16* window);

}  // namespace convtune::cpu
