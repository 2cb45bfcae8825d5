// One function an instruction, for compute capability 9.0 (sm_90a): barriers in shared memory that count
// arrivals, and the matrix products of a warpgroup whose operands lie in shared memory. As ptx_sm80.cuh: a
// name is the instruction's; the comment is what bites.
#pragma once

#include "ptx_sm80.cuh"

namespace convtune::ptx {

// ---- Barriers that count (mbarrier) ------------------------------------------------------------
// Addresses are of shared memory, aligned to 8. A barrier knows only whether its phase is odd: who waits for
// a phase must know that the one before is complete, and wait before the one after can be, or the wait ends
// at once or never.

__device__ inline void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// After the last init, before other threads may use the barriers (and a __syncthreads() besides).
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// One of the block's 16 barriers, for some of its warps; 0 is __syncthreads()'.
__device__ inline void bar_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// What this thread wrote to shared memory becomes visible to matrix products: by the writer, before it
// tells anybody.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Matrix products of a warpgroup ------------------------------------------------------------
// All 128 threads. The sums must not be read or written between wgmma_fence and wgmma_wait: the compiler
// would serialise the products (it warns).

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit_and_wait() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Operands without swizzle are made of core matrices, 8 rows of 16 bytes that follow each other. The
// descriptor counts in 16 bytes: `address` of the first; from the first 16 bytes of a row's k to the next
// (`k_step`); from 8 rows to the next 8 (`row_step`). Any multiple of 16 will do, so operands may overlap.
__device__ constexpr unsigned long long wgmma_descriptor(unsigned address, unsigned k_step,
                                                         unsigned row_step) {
  return (address & 0x3fff) | static_cast<unsigned long long>(k_step & 0x3fff) << 16 |
         static_cast<unsigned long long>(row_step & 0x3fff) << 32;
}

// sums = a * b, or += where `adds`; 64 x N x 8. Warp w has rows 16w to 16w+15; sums[4j + 2i + b] is row
// is row group + 8i, column 8j + 2 * thread + b. The operands' lower 13 bits are dropped: round with
// cvt_rna_tf32 first.
template <int N>
struct WgmmaTf32;

#define CONVTUNE_NAMES_0 "%0, %1, %2, %3"
#define CONVTUNE_NAMES_4 "%4, %5, %6, %7"
#define CONVTUNE_NAMES_8 "%8, %9, %10, %11"
#define CONVTUNE_NAMES_12 "%12, %13, %14, %15"
#define CONVTUNE_NAMES_16 "%16, %17, %18, %19"
#define CONVTUNE_NAMES_20 "%20, %21, %22, %23"
#define CONVTUNE_NAMES_24 "%24, %25, %26, %27"
#define CONVTUNE_NAMES_28 "%28, %29, %30, %31"
#define CONVTUNE_NAMES_32 "%32, %33, %34, %35"
#define CONVTUNE_NAMES_36 "%36, %37, %38, %39"
#define CONVTUNE_NAMES_40 "%40, %41, %42, %43"
#define CONVTUNE_NAMES_44 "%44, %45, %46, %47"
#define CONVTUNE_NAMES_48 "%48, %49, %50, %51"
#define CONVTUNE_NAMES_52 "%52, %53, %54, %55"
#define CONVTUNE_NAMES_56 "%56, %57, %58, %59"
#define CONVTUNE_NAMES_60 "%60, %61, %62, %63"
#define CONVTUNE_LIST_4 CONVTUNE_NAMES_0
#define CONVTUNE_LIST_8 CONVTUNE_LIST_4 ", " CONVTUNE_NAMES_4
#define CONVTUNE_LIST_12 CONVTUNE_LIST_8 ", " CONVTUNE_NAMES_8
#define CONVTUNE_LIST_16 CONVTUNE_LIST_12 ", " CONVTUNE_NAMES_12
#define CONVTUNE_LIST_24 CONVTUNE_LIST_16 ", " CONVTUNE_NAMES_16 ", " CONVTUNE_NAMES_20
#define CONVTUNE_LIST_32 CONVTUNE_LIST_24 ", " CONVTUNE_NAMES_24 ", " CONVTUNE_NAMES_28
#define CONVTUNE_LIST_48                                                                \
  CONVTUNE_LIST_32 ", " CONVTUNE_NAMES_32 ", " CONVTUNE_NAMES_36 ", " CONVTUNE_NAMES_40 \
                   ","                                                                  \
                   " " CONVTUNE_NAMES_44
#define CONVTUNE_LIST_64                                                                \
  CONVTUNE_LIST_48 ", " CONVTUNE_NAMES_48 ", " CONVTUNE_NAMES_52 ", " CONVTUNE_NAMES_56 \
                   ","                                                                  \
                   " " CONVTUNE_NAMES_60
#define CONVTUNE_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define CONVTUNE_SUMS_8(i) CONVTUNE_SUMS_4(i), CONVTUNE_SUMS_4(i + 4)
#define CONVTUNE_SUMS_12(i) CONVTUNE_SUMS_8(i), CONVTUNE_SUMS_4(i + 8)
#define CONVTUNE_SUMS_16(i) CONVTUNE_SUMS_12(i), CONVTUNE_SUMS_4(i + 12)
#define CONVTUNE_SUMS_24(i) CONVTUNE_SUMS_16(i), CONVTUNE_SUMS_4(i + 16), CONVTUNE_SUMS_4(i + 20)
#define CONVTUNE_SUMS_32(i) CONVTUNE_SUMS_24(i), CONVTUNE_SUMS_4(i + 24), CONVTUNE_SUMS_4(i + 28)
#define CONVTUNE_SUMS_48(i)                                                                       \
  CONVTUNE_SUMS_32(i), CONVTUNE_SUMS_4(i + 32), CONVTUNE_SUMS_4(i + 36), CONVTUNE_SUMS_4(i + 40), \
      CONVTUNE_SUMS_4(i + 44)
#define CONVTUNE_SUMS_64(i)                                                                       \
  CONVTUNE_SUMS_48(i), CONVTUNE_SUMS_4(i + 48), CONVTUNE_SUMS_4(i + 52), CONVTUNE_SUMS_4(i + 56), \
      CONVTUNE_SUMS_4(i + 60)

#define CONVTUNE_WGMMA(columns, count, a_name, b_name, adds_name)                                          \
  template <>                                                                                              \
  struct WgmmaTf32<columns> {                                                                              \
    __device__ static void multiply(float (&sums)[count], unsigned long long a, unsigned long long b,      \
                                    bool adds) {                                                           \
      asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                     \
                   ", 0;\n"                                                                                \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k8.f32.tf32.tf32 {" CONVTUNE_LIST_##count \
                   "}, " a_name ", " b_name ", adds, 1, 1;\n}"                                             \
                   : CONVTUNE_SUMS_##count(0)                                                              \
                   : "l"(a), "l"(b), "r"(static_cast<unsigned>(adds)));                                    \
    }                                                                                                      \
  };
CONVTUNE_WGMMA(8, 4, "%4", "%5", "%6")
CONVTUNE_WGMMA(16, 8, "%8", "%9", "%10")
CONVTUNE_WGMMA(24, 12, "%12", "%13", "%14")
CONVTUNE_WGMMA(32, 16, "%16", "%17", "%18")
CONVTUNE_WGMMA(48, 24, "%24", "%25", "%26")
CONVTUNE_WGMMA(64, 32, "%32", "%33", "%34")
CONVTUNE_WGMMA(96, 48, "%48", "%49", "%50")
CONVTUNE_WGMMA(128, 64, "%64", "%65", "%66")
#undef CONVTUNE_WGMMA

}  // namespace convtune::ptx
