// The twin of src/cuda/ptx/wgmma_three.cuh.
#pragma once

#include "cuda/ptx/wgmma_tf32.cuh"

namespace convtune::ptx {

template <int N>
struct ThreeWgmmaTf32 {
  template <int a1, int b1, int a2, int b2>
  static void multiply(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    WgmmaTf32<N>::multiply(sums, a, b, adds);
    WgmmaTf32<N>::multiply(sums, a + a1, b + b1, true);
    WgmmaTf32<N>::multiply(sums, a + a2, b + b2, true);
  }
};

}  // namespace convtune::ptx
