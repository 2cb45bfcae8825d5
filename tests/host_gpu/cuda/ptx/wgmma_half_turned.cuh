// The twin of src/cuda/ptx/wgmma_half_turned.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

template <bool kNarrow = false>
constexpr unsigned long long wgmma_descriptor_turned(unsigned address, unsigned step) {
  return (address & 0x3fff) | static_cast<unsigned long long>(step & 0x3fff) << 16 |
         (kNarrow ? 512ull : 1024ull) / 16 << 32 | (kNarrow ? 2ull : 1ull) << 62;
}

template <bool kBf16, int N>
struct WgmmaHalfTurned {
  static void multiply(float (&sums)[N / 2], unsigned long long a, unsigned long long b, bool adds) {
    host_gpu::wgmma({kBf16 ? host_gpu::Type::bf16 : host_gpu::Type::f16, N, nullptr, a, b, adds, true, true},
                    sums);
  }
};

}  // namespace convtune::ptx
