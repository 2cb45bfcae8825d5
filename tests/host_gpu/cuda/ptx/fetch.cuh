// The twin of src/cuda/ptx/fetch.cuh.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

inline void fetch_map(const TensorMap*) {}

}  // namespace convtune::ptx
