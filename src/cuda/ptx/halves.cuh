// Bits of the two halves of a word.
#pragma once

namespace convtune::ptx {

// The sign of each half in all its bits. (CUDA's __byte_perm drops the bits of its selector that ask for
// signs.)
__device__ inline unsigned half_signs(unsigned halves) {
  unsigned signs;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(signs) : "r"(halves));
  return signs;
}

}  // namespace convtune::ptx
