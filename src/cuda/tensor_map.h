// Tensor maps: how the copy engine of compute capability 9.0 is told of a tensor (kernels/ptx_sm90.cuh).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace convtune::cuda {

struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> opaque{};
};

// A dense tensor of floats and the box of it that one copy takes, the innermost extent first; `strides` in
// bytes, of the outer two. `data` and strides must be multiples of 16. Nothing where the driver has no such
// maps; in a rehearsal an empty map, which nobody uses. Throws Error where the driver refuses.
std::optional<TensorMap> tensor_map(int device, const void* data, const std::array<std::uint64_t, 3>& extents,
                                    const std::array<std::uint64_t, 2>& strides,
                                    const std::array<std::uint32_t, 3>& box);

}  // namespace convtune::cuda
