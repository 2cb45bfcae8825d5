// Three products of a warpgroup in one statement, in a file of their own: they take longer to read than the
// rest of a kernel.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// Three products one after the other in one statement, which compiles faster: the operands of the second and
// the third lie so much further on.
template <int N>
struct ThreeWgmmaTf32;

#define CONVTUNE_PRODUCT(columns, count) \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count "}, "
#define CONVTUNE_THREE_WGMMA(columns, count, a_name, b_name, adds_name, a1_name, b1_name, a2_name, b2_name)   \
  template <>                                                                                                 \
  struct ThreeWgmmaTf32<columns> {                                                                            \
    template <int a1, int b1, int a2, int b2>                                                                 \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,         \
                                    bool adds) {                                                              \
      asm volatile("{\n.reg .pred adds;\n.reg .b64 a, b;\nsetp.ne.b32 adds, " adds_name ", 0;\n"            \
                   CONVTUNE_PRODUCT(columns, count) a_name ", " b_name ", adds, 1, 1;\n"                    \
                   "add.s64 a, " a_name ", " a1_name ";\nadd.s64 b, " b_name ", " b1_name ";\n"             \
                   CONVTUNE_PRODUCT(columns, count) "a, b, 1, 1, 1;\n"                                      \
                   "add.s64 a, " a_name ", " a2_name ";\nadd.s64 b, " b_name ", " b2_name ";\n"             \
                   CONVTUNE_PRODUCT(columns, count) "a, b, 1, 1, 1;\n}"                                     \
                   : CONVTUNE_SUMS_##count                                                                  \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)), "n"(a1), "n"(b1), "n"(a2), "n"(b2)); \
    }                                                                                                         \
  };
CONVTUNE_ALL_WIDTHS(CONVTUNE_THREE_WGMMA)
#undef CONVTUNE_THREE_WGMMA
#undef CONVTUNE_PRODUCT

}  // namespace convtune::ptx
