// How TMA finds the operands of weight_gradient_half_sm90 and of its form for NCHW.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/config.h"
#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

// x as [pixel][channel] where pixels of y are those of x, with a window as rows of frames, else as images to
// walk over; dy as [pixel][filter].
TensorMaps weight_gradient_maps(const WeightGradientHalfSm90& kernel);

}  // namespace convtune::cuda
