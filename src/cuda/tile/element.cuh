// Numbers of the element types in device code. Sums are fp32 everywhere: an element is widened when it is
// read, and rounded to the nearest, ties to even, when it is stored.
#pragma once

#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/conv_extents.h"

namespace convtune {

// The lower and the upper half of a register. bfloat16 is the upper half of a float.
template <ElementType kType>
__device__ __forceinline__ float low_half(unsigned bits) {
  if constexpr (kType == ElementType::bf16) return __uint_as_float(bits << 16);
  return ptx::cvt_f32_f16(bits);
}
template <ElementType kType>
__device__ __forceinline__ float high_half(unsigned bits) {
  if constexpr (kType == ElementType::bf16) return __uint_as_float(bits & 0xffff0000u);
  return low_half<kType>(bits >> 16);
}

// Two numbers rounded into a register.
template <ElementType kType>
__device__ __forceinline__ unsigned pack_halves(float low, float high) {
  if constexpr (kType == ElementType::bf16) return ptx::cvt_rn_bf16x2(low, high);
  return ptx::cvt_rn_f16x2(low, high);
}

template <ElementType kType>
__device__ __forceinline__ float load_element(const void* __restrict__ tensor, long long index) {
  if constexpr (kType == ElementType::f32) return static_cast<const float*>(tensor)[index];
  return low_half<kType>(static_cast<const unsigned short*>(tensor)[index]);
}

template <ElementType kType>
__device__ __forceinline__ void store_element(void* __restrict__ tensor, long long index, float value) {
  if constexpr (kType == ElementType::f32)
    static_cast<float*>(tensor)[index] = value;
  else
    static_cast<unsigned short*>(tensor)[index] = static_cast<unsigned short>(pack_halves<kType>(value, 0));
}

template <ElementType kType>
__device__ __forceinline__ float rounded(float value) {
  if constexpr (kType == ElementType::f32) return value;
  return low_half<kType>(pack_halves<kType>(value, 0));
}

}  // namespace convtune
