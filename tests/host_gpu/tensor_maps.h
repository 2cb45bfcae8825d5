// Tensor maps as values, which the stand-in for the driver makes and launches read.
#pragma once

#include <array>
#include <cstdint>

namespace host_gpu {

struct TensorMap {
  const void* base = nullptr;
  int element_bytes = 4, rank = 1;
  int exchange = 0;  // 0, or 1 to 3: of 16-byte pieces within 32, 64 and 128 bytes
  std::array<std::uint64_t, 5> extents{}, strides{};
  std::array<int, 5> box{}, steps{1, 1, 1, 1, 1};
  bool walks = false;  // over pixels; the box is channels and pixels
  std::array<int, 3> first_corner{}, last_corner{};

  int count(int dimension) const {  // number of elements that a box takes
    return (box[static_cast<std::size_t>(dimension)] + steps[static_cast<std::size_t>(dimension)] - 1) /
           steps[static_cast<std::size_t>(dimension)];
  }
  unsigned row_bytes() const { return static_cast<unsigned>(box[0] * element_bytes); }
  unsigned bytes() const;
};

// Puts a map where the driver would put its 128 bytes.
void place(const TensorMap& map, void* opaque);

// Place of 16 bytes of shared memory behind an exchange.
constexpr unsigned exchanged(unsigned address, int exchange) {
  return exchange == 0 ? address : address ^ ((address >> 7 & ((2u << (exchange - 1)) - 1)) << 4);
}

}  // namespace host_gpu
