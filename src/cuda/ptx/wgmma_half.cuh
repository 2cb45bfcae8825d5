// Matrix products of a warpgroup in half precision (wgmma), for compute capability 9.0 (sm_90a), with one
// operand in registers. As wgmma.cuh, whose lists of registers it takes.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// sums = a * b, or += where `adds`; 64 x N x 16, b in shared memory as rows of k. Warp w has rows 16w to
// 16w+15; sums[4j + 2i + b] is row group + 8i, column 8j + 2 * thread + b. a[2h + i] is row group + 8i, k 8h
// + 2 * thread and the next; they must be as they were until the products are done.
template <bool kBf16, int N>
struct WgmmaHalfRegisters;

#define CONVTUNE_WGMMA_HALF(bf16, type, columns, count, a0, a1, a2, a3, b_name, adds_name)                  \
  template <>                                                                                               \
  struct WgmmaHalfRegisters<bf16, columns> {                                                                \
    __device__ static void multiply(float (&sums)[count], const unsigned (&a)[4], unsigned long long b,     \
                                    bool adds) {                                                            \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                      \
                   ", 0;\n"                                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type                    \
                   " {" CONVTUNE_LIST_##count "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_name                \
                                              ", adds, 1, 1, 0;\n}"                                         \
                   : CONVTUNE_SUMS_##count                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<unsigned>(adds))); \
    }                                                                                                       \
  };
#define CONVTUNE_WGMMA_HALVES(columns, count, a0, a1, a2, a3, b_name, adds_name, ...)  \
  CONVTUNE_WGMMA_HALF(true, "bf16", columns, count, a0, a1, a2, a3, b_name, adds_name) \
  CONVTUNE_WGMMA_HALF(false, "f16", columns, count, a0, a1, a2, a3, b_name, adds_name)
CONVTUNE_WIDTHS(CONVTUNE_WGMMA_HALVES)
#undef CONVTUNE_WGMMA_HALVES
#undef CONVTUNE_WGMMA_HALF

}  // namespace convtune::ptx
