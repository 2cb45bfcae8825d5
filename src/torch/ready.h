// Calls of conv2d_forward that need no preparation.
#pragma once

#include "torch/operator_table.h"

namespace convtune::torch {

// y, where that call is ready and no CUDA graph records it; else none.
Tensor run_if_ready(const Call& call);

}  // namespace convtune::torch
