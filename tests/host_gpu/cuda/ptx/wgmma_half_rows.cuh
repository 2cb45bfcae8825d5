// The twin of src/cuda/ptx/wgmma_half_rows.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

template <bool kBf16, int N>
struct WgmmaHalfRows {
  static void multiply(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    host_gpu::wgmma({kBf16 ? host_gpu::Type::bf16 : host_gpu::Type::f16, N, nullptr, a, b, adds, false, true},
                    sums);
  }
  template <int kStep>
  static void multiply_four(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    for (int i = 0; i < 4; ++i) multiply(sums, a + 128 * i, b + kStep * i, adds || i > 0);
  }
};

}  // namespace convtune::ptx
