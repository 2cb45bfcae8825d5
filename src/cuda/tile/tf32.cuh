// Numbers rounded to TF32 while they go to where products read them, and whether one of them is not finite,
// which products with padding or rounding would spread.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune {

// The least number whose nearest TF32 is infinity. (Inline, or a random number becomes part of its name.)
inline constexpr float kTf32Overflow = 0x1.ffep127f;

__device__ inline bool is_finite(unsigned bits) {
  return (bits & 0x7f800000) != 0x7f800000;
}

// Matrix products drop the lower 13 bits: half of what they are worth is added, which rounds as cvt_rna_tf32
// does, in one instruction. A NaN may wrap to a number: `largest`, the largest absolute value so far, becomes
// NaN then.
__device__ inline unsigned round_tf32(unsigned bits, float& largest) {
  largest = ptx::max_nan(largest, fabsf(__uint_as_float(bits)));
  return bits + 0x1000;
}

}  // namespace convtune
