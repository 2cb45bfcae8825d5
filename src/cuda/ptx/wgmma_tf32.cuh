// Matrix products of a warpgroup in TF32 (wgmma), for compute capability 9.0 (sm_90a), with both operands in
// shared memory.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// sums = a * b, or += where `adds`; 64 x N x 8. Warp w has rows 16w to 16w+15; sums[4j + 2i + b] is row
// group + 8i, column 8j + 2 * thread + b. The operands' lower 13 bits are dropped: round with
// cvt_rna_tf32 first.
template <int N>
struct WgmmaTf32;

#define CONVTUNE_WGMMA(columns, count, a_name, b_name, adds_name, ...)                                     \
  template <>                                                                                              \
  struct WgmmaTf32<columns> {                                                                              \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,      \
                                    bool adds) {                                                           \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                     \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count \
                   "}, " a_name ", " b_name ", adds, 1, 1;\n}"                                             \
                   : CONVTUNE_SUMS_##count                                                                 \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));                                    \
    }                                                                                                      \
  };
CONVTUNE_ALL_WIDTHS(CONVTUNE_WGMMA)
#undef CONVTUNE_WGMMA

// Three products one after the other in one statement, which compiles faster. (wgmma_three.cuh: their
// operands lie apart by constants.)
template <int N>
struct ThreeWgmmaTf32Anywhere;

#define CONVTUNE_PRODUCT(columns, count, a_name, b_name, adds_name)                       \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count \
      "}, " a_name ", " b_name ", " adds_name ", 1, 1;\n"
#define CONVTUNE_THREE_WGMMA_ANYWHERE(columns, count, a0, a1, a2, b0, b1, b2, adds_name)             \
  template <>                                                                                        \
  struct ThreeWgmmaTf32Anywhere<columns> {                                                           \
    __device__ static void multiply(float (&sums)[count], const unsigned long long (&a)[3],          \
                                    const unsigned long long (&b)[3], bool adds) {                   \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name ", 0;\n" CONVTUNE_PRODUCT(    \
                       columns, count, a0, b0, "adds") CONVTUNE_PRODUCT(columns, count, a1, b1, "1") \
                       CONVTUNE_PRODUCT(columns, count, a2, b2, "1") "}"                             \
                   : CONVTUNE_SUMS_##count                                                           \
                   : "l"(a[0]), "l"(a[1]), "l"(a[2]), "l"(b[0]), "l"(b[1]), "l"(b[2]),               \
                     "r"(static_cast<unsigned>(adds)));                                              \
    }                                                                                                \
  };
CONVTUNE_THREE_WGMMA_ANYWHERE(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
CONVTUNE_THREE_WGMMA_ANYWHERE(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
CONVTUNE_THREE_WGMMA_ANYWHERE(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
#undef CONVTUNE_THREE_WGMMA_ANYWHERE
#undef CONVTUNE_PRODUCT

}  // namespace convtune::ptx
