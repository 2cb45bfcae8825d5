// The twin of src/cuda/ptx/counters.cuh.
#pragma once

#include "cuda/ptx/shared.cuh"

namespace convtune::ptx {

inline unsigned come_to(unsigned* counter, unsigned last) {
  const unsigned before = *counter;
  *counter = before >= last ? 0 : before + 1;
  return before;
}
inline bool all_have_come(const unsigned* counter, int times) {
  for (int i = 0; i < times; ++i) {
    if (*counter == 0) return true;
    if (i + 1 < times) host_gpu::give_way();
  }
  return false;
}
inline void fence_both_ways() {}
inline float4 ld_of_grid(const float4* from) {
  return *host_gpu::aligned(from, 16);
}
inline float ld_of_grid(const float* from) {
  return *host_gpu::aligned(from, 4);
}

}  // namespace convtune::ptx
