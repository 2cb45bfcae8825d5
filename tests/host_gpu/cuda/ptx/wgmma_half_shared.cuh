// The twin of src/cuda/ptx/wgmma_half_shared.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

template <int kRowBytes>
constexpr unsigned long long wgmma_descriptor_exchanged(unsigned address) {
  static_assert(kRowBytes == 64 || kRowBytes == 128);
  return (address & 0x3fff) | 1ull << 16 | static_cast<unsigned long long>(8 * kRowBytes / 16) << 32 |
         (kRowBytes == 128 ? 1ull : 2ull) << 62;
}

template <bool kBf16, int N, bool kRowsOfN = false>
struct WgmmaHalfShared {
  static void multiply(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    host_gpu::wgmma({kBf16 ? host_gpu::Type::bf16 : host_gpu::Type::f16, N, nullptr, a, b, adds, kRowsOfN},
                    sums);
  }
  template <int kStep>
  static void multiply_four(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    for (int i = 0; i < 4; ++i) multiply(sums, a + 2 * i, b + kStep * i, adds || i > 0);
  }
};

}  // namespace convtune::ptx
