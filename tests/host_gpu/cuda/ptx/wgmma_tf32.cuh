// The twin of src/cuda/ptx/wgmma_tf32.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

template <int N>
struct WgmmaTf32 {
  static void multiply(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    host_gpu::wgmma({host_gpu::Type::tf32, N, nullptr, a, b, adds, false}, sums);
  }
};
template <int N>
struct ThreeWgmmaTf32Anywhere {
  static void multiply(float (&sums)[N / 2], const unsigned long long (&a)[3],
                       const unsigned long long (&b)[3], bool adds) {
    for (int i = 0; i < 3; ++i) WgmmaTf32<N>::multiply(sums, a[i], b[i], adds || i > 0);
  }
};

}  // namespace convtune::ptx
