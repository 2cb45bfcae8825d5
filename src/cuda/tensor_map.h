// Tensor maps: how the copy engine of compute capability 9.0 is told of a tensor (kernels/ptx_sm90.cuh).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace convtune::cuda {

struct alignas(64) TensorMap {
  std::array<std::uint64_t, 16> opaque{};
};

// As CUDA C++ makes it again: of one that was made in a rehearsal.
std::string to_cuda(const TensorMap& map);

// How a box lies in shared memory: its rows one after the other; or, for rows of 128 bytes, with the 16-byte
// pieces of each exchanged by the row's number modulo 8, which spreads a column over all banks.
enum class Swizzle { none, bytes_128 };

// A dense tensor of floats and the box of it that one copy takes, the innermost extent first; `strides` in
// bytes, of all but that one. At most five extents. `data` and strides must be multiples of 16. Nothing where
// the driver has no such maps; in a rehearsal a map that nobody uses. Throws Error where the driver refuses.
std::optional<TensorMap> tensor_map(int device, const void* data, const std::vector<std::uint64_t>& extents,
                                    const std::vector<std::uint64_t>& strides,
                                    const std::vector<std::uint32_t>& box, Swizzle swizzle = Swizzle::none);

}  // namespace convtune::cuda
