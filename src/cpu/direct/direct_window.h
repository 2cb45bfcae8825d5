// Staging: the input that one tile reads, copied into a core's cache in the order in which the
// kernels want it (direct_geometry.h has the picture).
#pragma once

#include "convtune/problem.h"
#include "cpu/direct/direct_geometry.h"
#include "cpu/direct/direct_kernels.h"

namespace convtune::cpu {

// Fills geometry.window floats at `window` for the tile, zeros where it reaches past the image.
void stage_window(const ConvProblem& problem, const DirectGeometry& geometry, const DirectKernels& kernels,
                  const DirectTile& tile, const float* x, float* window);

}  // namespace convtune::cpu
