// As above, as wgmma_tf32.cuh with `a` in registers.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// sums = a * b, or += where `adds`; 64 x N x 8. `a` is rounded: a[2i + j] is row group + 8j, k thread + 4i.
// They must be as they were until the products are done.
template <int N>
struct WgmmaTf32Registers;

#define CONVTUNE_WGMMA_REGISTERS(columns, count, a0, a1, a2, a3, b_name, adds_name, ...)                    \
  template <>                                                                                               \
  struct WgmmaTf32Registers<columns> {                                                                      \
    __device__ static void multiply(float (&sums)[count], const unsigned (&a)[4], unsigned long long b,     \
                                    bool adds) {                                                            \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                      \
                   ", 0;\n"                                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count  \
                   "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_name ", adds, 1, 1;\n}"                        \
                   : CONVTUNE_SUMS_##count                                                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<unsigned>(adds))); \
    }                                                                                                       \
  };
CONVTUNE_WIDTHS(CONVTUNE_WGMMA_REGISTERS)
CONVTUNE_WIDER(CONVTUNE_WGMMA_REGISTERS)
#undef CONVTUNE_WGMMA_REGISTERS

}  // namespace convtune::ptx
