// Matrix products of a warpgroup in half precision (wgmma), for compute capability 9.0 (sm_90a), with both
// operands in shared memory and k the outer extent of both. As wgmma.cuh, whose lists of registers it takes.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace convtune::ptx {

// Describes an operand that lies as rows of 64 of its rows or columns, 128 bytes, a row for each k, with
// their 16-byte pieces exchanged as TMA does it. `address` is in 16 bytes, and `step`, from 64 to the next
// 64, is, too. The next 16 of k are 2048 bytes further on: products read there when `address` is so much
// larger. An operand that begins at another row, by a multiple of 128 bytes, keeps the exchanges of the
// memory's own rows. Narrow ones have 32 rows or columns in 64 bytes, 16 of k in 1024, and a step from 32 to
// 32.
template <bool kNarrow = false>
__device__ constexpr unsigned long long wgmma_descriptor_turned(unsigned address, unsigned step) {
  return (address & 0x3fff) | static_cast<unsigned long long>(step & 0x3fff) << 16 |
         (kNarrow ? 512ull : 1024ull) / 16 << 32 | (kNarrow ? 2ull : 1ull) << 62;
}

// sums = a * b, or += where `adds`; 64 x N x 16, sums as WgmmaHalfShared has them.
template <bool kBf16, int N>
struct WgmmaHalfTurned;

#define CONVTUNE_WGMMA_TURNED(bf16, type, columns, count, a_name, b_name, adds_name)                  \
  template <>                                                                                         \
  struct WgmmaHalfTurned<bf16, columns> {                                                             \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b, \
                                    bool adds) {                                                      \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                \
                   ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type        \
                   " {" CONVTUNE_LIST_##count "}, " a_name ", " b_name ", adds, 1, 1, 1, 1;\n}"       \
                   : CONVTUNE_SUMS_##count                                                            \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));                               \
    }                                                                                                 \
  };
#define CONVTUNE_WGMMA_TURNED_HALVES(columns, count, a_name, b_name, adds_name, ...) \
  CONVTUNE_WGMMA_TURNED(true, "bf16", columns, count, a_name, b_name, adds_name)     \
  CONVTUNE_WGMMA_TURNED(false, "f16", columns, count, a_name, b_name, adds_name)
CONVTUNE_WIDTHS(CONVTUNE_WGMMA_TURNED_HALVES)
CONVTUNE_WIDER(CONVTUNE_WGMMA_TURNED_HALVES)
#undef CONVTUNE_WGMMA_TURNED_HALVES
#undef CONVTUNE_WGMMA_TURNED

}  // namespace convtune::ptx
