// Reads numbers of direct_fma_sm80.cuh from shared memory, in vectors and no more than is wanted.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::direct_fma_sm80 {

// Floats [kBegin, kEnd) of a vector in shared memory: no more than is wanted.
template <int kBegin, int kEnd>
__device__ __forceinline__ void read_some(float* to, const float* from) {
  if constexpr (kEnd - kBegin == 1) {
    to[0] = from[kBegin];
  } else if constexpr (kBegin / 2 == (kEnd - 1) / 2) {
    const float2 pair = *reinterpret_cast<const float2*>(from + kBegin);
    to[0] = pair.x, to[1] = pair.y;
  } else {
    const float4 four = *reinterpret_cast<const float4*>(from);
    const float all[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = kBegin; i < kEnd; ++i) to[i - kBegin] = all[i];
  }
}
// From an address there, in a way that the compiler can neither move nor keep.
template <int kBegin, int kEnd>
__device__ __forceinline__ void read_some(float* to, unsigned from) {
  if constexpr (kEnd - kBegin == 1) {
    ptx::ld_shared(to[0], from + kBegin * 4);
  } else if constexpr (kBegin / 2 == (kEnd - 1) / 2) {
    ptx::ld_shared_v2(to[0], to[1], from + kBegin * 4);
  } else {
    float all[4];
    ptx::ld_shared_v4(all[0], all[1], all[2], all[3], from);
#pragma unroll
    for (int i = kBegin; i < kEnd; ++i) to[i - kBegin] = all[i];
  }
}

// kCount floats behind the kFirst of a vector, at `from`.
template <int kFirst, int kCount, class Address>
__device__ __forceinline__ void read(float* to, Address from) {
  constexpr int kUnit = sizeof(Address) == sizeof(unsigned) ? 4 : 1;  // words that addresses count
  constexpr int kEnd = kFirst + kCount, kWhole = kFirst > 0 ? 4 : 0;  // where whole vectors begin
  if constexpr (kFirst > 0) read_some<kFirst, (kEnd < 4 ? kEnd : 4)>(to, from);
#pragma unroll
  for (int i = kWhole; i + 4 <= kEnd; i += 4) read_some<0, 4>(to + i - kFirst, from + i * kUnit);
  if constexpr (kEnd > kWhole && kEnd % 4 > 0)
    read_some<0, kEnd % 4>(to + kEnd / 4 * 4 - kFirst, from + kEnd / 4 * 4 * kUnit);
}

}  // namespace convtune::direct_fma_sm80
