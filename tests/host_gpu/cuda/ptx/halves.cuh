// The twin of src/cuda/ptx/halves.cuh.
#pragma once

namespace convtune::ptx {

inline unsigned half_signs(unsigned halves) {
  return (halves >> 15 & 0x00010001) * 0xffff;
}

}  // namespace convtune::ptx
