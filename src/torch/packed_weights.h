// convtune::conv2d_packed: what a node of a compiled graph of fixed sizes is. convtune/torch/packed.py has
// the same in Python, for where this library is not.
#pragma once

#include "torch/shim.h"

namespace convtune::torch {

inline constexpr const char* kPackedSchema =
    "conv2d_packed(Tensor x, Tensor packed, Tensor? residual, str plan) -> Tensor";
Kernel conv2d_packed;

}  // namespace convtune::torch
