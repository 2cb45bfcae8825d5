// Matrix products of a warpgroup in half precision (wgmma), for compute capability 9.0 (sm_90a), with both
// operands in shared memory. As wgmma.cuh, whose lists of registers it takes.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// Describes an operand whose rows are kRowBytes of k, 64 or 128, with their 16-byte pieces exchanged as TMA
// does it: each by the number of its row (of 128 bytes) modulo as many as there are. `address` in 16 bytes;
// eight rows begin at a multiple of their size. The next 16 of k are 2 further on, in those rows still.
template <int kRowBytes>
__device__ constexpr unsigned long long wgmma_descriptor_exchanged(unsigned address) {
  static_assert(kRowBytes == 64 || kRowBytes == 128);
  return (address & 0x3fff) | 1ull << 16 | static_cast<unsigned long long>(8 * kRowBytes / 16) << 32 |
         (kRowBytes == 128 ? 1ull : 2ull) << 62;
}

// sums = a * b, or += where `adds`; 64 x N x 16. Warp w has rows 16w to 16w+15; sums[4j + 2i + b] is row
// group + 8i, column 8j + 2 * thread + b. kRowsOfN: b lies as rows of 64 columns, eight of k the next to each
// other, with their pieces exchanged likewise.
// multiply_four: four products one after the other in one statement, which compiles faster; the operands of
// each lie 2 and kStep behind those of the one before.
template <bool kBf16, int N, bool kRowsOfN = false>
struct WgmmaHalfShared;

#define CONVTUNE_PRODUCT(type, columns, count, adds, rows_name)                                    \
  "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" CONVTUNE_LIST_##count \
      "}, a, b, " adds ", 1, 1, 0, " rows_name ";\n"
#define CONVTUNE_NEXT_PRODUCT(type, columns, count, rows_name, step_name) \
  "add.s64 a, a, 2;\nadd.s64 b, b, " step_name ";\n" CONVTUNE_PRODUCT(type, columns, count, "1", rows_name)
#define CONVTUNE_FIRST_PRODUCT(type, columns, count, a_name, b_name, adds_name, rows_name)        \
  "{\n.reg .pred adds;\n.reg .b64 a, b;\nsetp.ne.b32 adds, " adds_name ", 0;\nmov.b64 a, " a_name \
  ";\nmov.b64 b, " b_name ";\n" CONVTUNE_PRODUCT(type, columns, count, "adds", rows_name)
#define CONVTUNE_WGMMA_HALF(bf16, type, columns, count, a_name, b_name, adds_name, rows_name, step_name)   \
  template <bool kRowsOfN>                                                                                 \
  struct WgmmaHalfShared<bf16, columns, kRowsOfN> {                                                        \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,      \
                                    bool adds) {                                                           \
      asm volatile(CONVTUNE_FIRST_PRODUCT(type, columns, count, a_name, b_name, adds_name, rows_name) "}"  \
                   : CONVTUNE_SUMS_##count                                                                 \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)), "n"(static_cast<int>(kRowsOfN)));   \
    }                                                                                                      \
    template <int kStep>                                                                                   \
    __device__ static void multiply_four(float (&sums)[count], unsigned long long a, unsigned long long b, \
                                         bool adds) {                                                      \
      asm volatile(CONVTUNE_FIRST_PRODUCT(type, columns, count, a_name, b_name, adds_name, rows_name)      \
                       CONVTUNE_NEXT_PRODUCT(type, columns, count, rows_name, step_name)                   \
                           CONVTUNE_NEXT_PRODUCT(type, columns, count, rows_name, step_name)               \
                               CONVTUNE_NEXT_PRODUCT(type, columns, count, rows_name, step_name) "}"       \
                   : CONVTUNE_SUMS_##count                                                                 \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)), "n"(static_cast<int>(kRowsOfN)),    \
                     "n"(kStep));                                                                          \
    }                                                                                                      \
  };
#define CONVTUNE_WGMMA_HALVES(columns, count, a_name, b_name, adds_name, rows_name, step_name, ...)  \
  CONVTUNE_WGMMA_HALF(true, "bf16", columns, count, a_name, b_name, adds_name, rows_name, step_name) \
  CONVTUNE_WGMMA_HALF(false, "f16", columns, count, a_name, b_name, adds_name, rows_name, step_name)
CONVTUNE_WIDTHS(CONVTUNE_WGMMA_HALVES)
CONVTUNE_WIDER(CONVTUNE_WGMMA_HALVES)
CONVTUNE_BETWEEN(CONVTUNE_WGMMA_HALVES)
#undef CONVTUNE_WGMMA_HALVES
#undef CONVTUNE_WGMMA_HALF
#undef CONVTUNE_FIRST_PRODUCT
#undef CONVTUNE_NEXT_PRODUCT
#undef CONVTUNE_PRODUCT

}  // namespace convtune::ptx
