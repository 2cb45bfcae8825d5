// A problem as device code wants it (kernels/conv2d_extents.h), and as NVRTC reads it.
#pragma once

#include <string>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "cuda/kernels/conv2d_extents.h"

namespace convtune::cuda {

// Whether every extent is small enough for ints: otherwise a refusal that names it.
Support fits_extents(const Conv2dProblem& problem);

// For a problem that fits. A batch of 0 is planned and packed for as 1, and never run.
Conv2dExtents extents_of(const Conv2dProblem& problem);

// "convtune::Conv2dExtents{.n=256,...}"
std::string to_cuda(const Conv2dExtents& extents);

}  // namespace convtune::cuda
