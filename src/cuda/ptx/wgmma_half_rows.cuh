// Matrix products of a warpgroup in half precision (wgmma), for compute capability 9.0 (sm_90a), with both
// operands in shared memory, the first with k as its outer extent. As wgmma.cuh, whose lists of registers it
// takes.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// sums = a * b, or += where `adds`; 64 x N x 16, sums as WgmmaHalfShared has them, which has b, too; `a` lies
// as rows of 64 of its rows, one for each k, eight of k the next to each other.
// multiply_four: four products one after the other; the operands of each lie 128 and kStep behind those of
// the one before.
template <bool kBf16, int N>
struct WgmmaHalfRows;

#define CONVTUNE_WGMMA_ROWS(bf16, type, columns, count, a_name, b_name, adds_name)                         \
  template <>                                                                                              \
  struct WgmmaHalfRows<bf16, columns> {                                                                    \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,      \
                                    bool adds) {                                                           \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                     \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type             \
                   " {" CONVTUNE_LIST_##count "}, " a_name ", " b_name ", adds, 1, 1, 1, 0;\n}"            \
                   : CONVTUNE_SUMS_##count                                                                 \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));                                    \
    }                                                                                                      \
    template <int kStep>                                                                                   \
    __device__ static void multiply_four(float (&sums)[count], unsigned long long a, unsigned long long b, \
                                         bool adds) {                                                      \
      for (int i = 0; i < 4; ++i) multiply(sums, a + 128 * i, b + kStep * i, adds || i > 0);               \
    }                                                                                                      \
  };
#define CONVTUNE_WGMMA_ROWS_HALVES(columns, count, a_name, b_name, adds_name, ...) \
  CONVTUNE_WGMMA_ROWS(true, "bf16", columns, count, a_name, b_name, adds_name)     \
  CONVTUNE_WGMMA_ROWS(false, "f16", columns, count, a_name, b_name, adds_name)
CONVTUNE_WIDTHS(CONVTUNE_WGMMA_ROWS_HALVES)
CONVTUNE_WIDER(CONVTUNE_WGMMA_ROWS_HALVES)
CONVTUNE_BETWEEN(CONVTUNE_WGMMA_ROWS_HALVES)
#undef CONVTUNE_WGMMA_ROWS_HALVES
#undef CONVTUNE_WGMMA_ROWS

}  // namespace convtune::ptx
