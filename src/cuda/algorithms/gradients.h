// Algorithms of gradients with kernels of our own, beside those of algorithms.h: one function each.
#pragma once

#include "contract/backend.h"

namespace convtune::cuda {

const Algorithm& depthwise_data_gradient_sm80();
const Algorithm& weight_gradient_half_nchw_sm90();
const Algorithm& weight_gradient_planes_sm80();
const Algorithm& weight_gradient_tf32_sm80();
const Algorithm& weight_gradient_tf32_sm90();

}  // namespace convtune::cuda
