// Tensor maps: how TMA is told of a tensor (ptx/sm90.cuh).
#pragma once

#include <array>
#include <cstdint>

#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> opaque;
};

// Describes the elements at `data`, a multiple of 16 bytes. False where the driver makes no tensor maps.
// Throws Error where it refuses this one.
bool make_tensor_map(int device, const void* data, const TensorMapLayout& layout, TensorMap& map);

}  // namespace convtune::cuda
