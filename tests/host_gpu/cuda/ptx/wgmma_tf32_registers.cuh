// The twin of src/cuda/ptx/wgmma_tf32_registers.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

template <int N>
struct WgmmaTf32Registers {
  static void multiply(float (&sums)[N / 2], const unsigned (&a)[4], unsigned long long b, bool adds) {
    host_gpu::wgmma({host_gpu::Type::tf32, N, a, 0, b, adds, false}, sums);
  }
};

}  // namespace convtune::ptx
