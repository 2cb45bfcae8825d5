// The twin of src/cuda/ptx/wgmma_half.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

template <bool kBf16, int N>
struct WgmmaHalfRegisters {
  static void multiply(float (&sums)[N / 2], const unsigned (&a)[4], unsigned long long b, bool adds) {
    host_gpu::wgmma({kBf16 ? host_gpu::Type::bf16 : host_gpu::Type::f16, N, a, 0, b, adds, false}, sums);
  }
};

}  // namespace convtune::ptx
