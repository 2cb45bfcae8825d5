// The twin of src/cuda/ptx/wgmma.cuh. Any width is one template here, so there are no lists of registers.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

inline void wgmma_fence() {
  host_gpu::meet(host_gpu::Meeting::wgmma_fence, nullptr, host_gpu::nothing_together);
}
inline void wgmma_commit_and_wait() {
  host_gpu::wgmma_commit();
  host_gpu::wgmma_wait(0);
}
inline void wgmma_commit() {
  host_gpu::wgmma_commit();
}
template <int kPending>
inline void wgmma_wait() {
  host_gpu::wgmma_wait(kPending);
}

constexpr unsigned long long wgmma_descriptor(unsigned address, unsigned k_step, unsigned row_step) {
  return (address & 0x3fff) | static_cast<unsigned long long>(k_step & 0x3fff) << 16 |
         static_cast<unsigned long long>(row_step & 0x3fff) << 32;
}

}  // namespace convtune::ptx
