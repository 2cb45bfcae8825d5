// One function an instruction, for compute capability 8.0 and up: asynchronous copies into shared
// memory, matrix loads, matrix products, conversions. A name is the instruction's; the comment is what
// bites. In fragments `group` is lane / 4 and `thread` is lane % 4.
#pragma once

#include "cuda/ptx/shared.cuh"

namespace convtune::ptx {

// ---- Asynchronous copies -----------------------------------------------------------------------
// Bytes of the copy's size beyond `source_bytes` are filled with zeros; with 0 nothing is read. Both
// addresses must be aligned to the copy's size even then, and more source bytes than the size are undefined.

// kBytes behind `from`: in the instruction, where a sum of its own would take two more.
template <long long kBytes = 0>
__device__ inline void cp_async_4(unsigned to, const void* from, unsigned source_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1 + %3], 4, %2;" ::"r"(to), "l"(from), "r"(source_bytes),
               "n"(kBytes)
               : "memory");
}

__device__ inline void cp_async_8(unsigned to, const void* from, unsigned source_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(source_bytes)
               : "memory");
}

// The only size that can go round L1 (.cg), which is what a tile that is read once wants.
__device__ inline void cp_async_16(unsigned to, const void* from, unsigned source_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(source_bytes)
               : "memory");
}

// As above, through L1, for what the next copies read again, kBytes behind `from`.
template <long long kBytes = 0>
__device__ inline void cp_async_16_cached(unsigned to, const void* from, unsigned source_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1 + %3], 16, %2;" ::"r"(to), "l"(from), "r"(source_bytes),
               "n"(kBytes)
               : "memory");
}

// Only where it is wanted. A condition within the statement compiles in less time than a branch around it.
__device__ inline void cp_async_4_if(unsigned to, const void* from, unsigned source_bytes, bool wanted) {
  asm volatile(CONVTUNE_IF("%3") "cp.async.ca.shared.global [%0], [%1], 4, %2;\n}" ::"r"(to), "l"(from),
               "r"(source_bytes), "r"(static_cast<int>(wanted))
               : "memory");
}
__device__ inline void cp_async_16_if(unsigned to, const void* from, unsigned source_bytes, bool wanted) {
  asm volatile(CONVTUNE_IF("%3") "cp.async.cg.shared.global [%0], [%1], 16, %2;\n}" ::"r"(to), "l"(from),
               "r"(source_bytes), "r"(static_cast<int>(wanted))
               : "memory");
}

// Copies data that is read once and never again: on 9.0 L2 gives its place away before any other, so that
// outputs stay there. The policy is what createpolicy.fractional.L2::evict_first makes with 1.0; made so it
// would be moved to uniform registers before each copy.
__device__ inline void cp_async_16_once_if(unsigned to, const void* from, unsigned source_bytes,
                                           bool wanted) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile(
      CONVTUNE_IF("%3") "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %4;\n}" ::"r"(to),
      "l"(from), "r"(source_bytes), "r"(static_cast<int>(wanted)), "l"(0x12f0000000000000ull)
      : "memory");
#else
  cp_async_16_if(to, from, source_bytes, wanted);
#endif
}

// kSize bytes, 4 or 16, from kFrom bytes behind `from` to kTo behind `to`.
template <int kSize, int kTo, long long kFrom>
__device__ inline void cp_async_behind(unsigned to, const void* from, unsigned source_bytes) {
  constexpr bool kInInstruction = kFrom < 1 << 23;
  const char* const begin = static_cast<const char*>(from) + (kInInstruction ? 0 : kFrom);
  if constexpr (kSize == 16)
    asm volatile("cp.async.cg.shared.global [%0 + %3], [%1 + %4], 16, %2;" ::"r"(to), "l"(begin),
                 "r"(source_bytes), "n"(kTo), "n"(kInInstruction ? kFrom : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0 + %3], [%1 + %4], 4, %2;" ::"r"(to), "l"(begin),
                 "r"(source_bytes), "n"(kTo), "n"(kInInstruction ? kFrom : 0)
                 : "memory");
}

// Gathers pieces of 16 bytes in a row from `from` on the one number piece + times * kTimes + kMore, to kTo
// bytes behind `to`. The compiler would keep a sum of them, in two registers.
template <int kTo, int kTimes, int kMore>
__device__ inline void cp_async_16_piece(unsigned to, const void* from, unsigned piece, unsigned times) {
  asm volatile(
      "{\n.reg .b64 at;\n.reg .b32 sum;\nmad.lo.s32 sum, %3, %5, %2;\nadd.s32 sum, sum, %6;\n"
      "mad.wide.u32 at, sum, 16, %1;\ncp.async.cg.shared.global [%0 + %4], [at], 16;\n}" ::"r"(to),
      "l"(from), "r"(piece), "r"(times), "n"(kTo), "n"(kTimes), "n"(kMore)
      : "memory");
}

// Closes this thread's group, an empty one too: commit in every iteration, or the count of groups that
// wait_group relies on drifts in the last ones.
__device__ inline void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups are in flight. Other threads' copies are visible
// only after a __syncthreads() behind it.
template <int kPending>
__device__ inline void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- Loads -------------------------------------------------------------------------------------

// Four words at a multiple of 16 bytes, of what nothing writes meanwhile, with no place in L1 for them.
__device__ inline void ld_global_v4_uncached(unsigned (&to)[4], const void* from) {
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "l"(from));
}

// ---- Stores with conditions --------------------------------------------------------------------
// As above: the optimizer takes three times as long where each has a branch.

__device__ inline void st_global_if(float* to, float value, bool wanted) {
  asm volatile(CONVTUNE_IF("%2") "st.global.f32 [%0], %1;\n}" ::"l"(to), "f"(value),
               "r"(static_cast<int>(wanted))
               : "memory");
}
// Four in a row, kBytes behind `to`: a sum of its own would take two instructions more.
template <int kBytes = 0>
__device__ inline void st_global_v4_if(float* to, const float (&values)[4], bool wanted) {
  asm volatile(CONVTUNE_IF("%5") "st.global.v4.f32 [%0 + %6], {%1, %2, %3, %4};\n}" ::"l"(to), "f"(values[0]),
               "f"(values[1]), "f"(values[2]), "f"(values[3]), "r"(static_cast<int>(wanted)), "n"(kBytes)
               : "memory");
}

__device__ inline void st_global_v4_if(void* to, const unsigned (&values)[4], bool wanted) {
  asm volatile(CONVTUNE_IF("%5") "st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(to), "r"(values[0]),
               "r"(values[1]), "r"(values[2]), "r"(values[3]), "r"(static_cast<int>(wanted))
               : "memory");
}

// ---- Matrix loads ------------------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements. Lanes 8i..8i+7 give the addresses of matrix i's rows, each of 16
// bytes and aligned to 16; lane l receives elements 2*thread, 2*thread+1 of row `group`. Rows whose
// addresses agree modulo 128 conflict. Seen as 32-bit elements a row is 4 of them, one a thread: that is
// how it loads TF32 operands (never with .trans, which would tear them apart).
__device__ inline void ldmatrix_x4(unsigned (&to)[4], unsigned row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row_address)
               : "memory");
}

// Two of them: lanes 0..15 give the addresses.
__device__ inline void ldmatrix_x2(unsigned& first, unsigned& second, unsigned row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "r"(row_address)
               : "memory");
}

// Four with each matrix transposed: lane l receives rows 2*thread, 2*thread+1 of column `group`.
__device__ inline void ldmatrix_x4_trans(unsigned (&to)[4], unsigned row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row_address)
               : "memory");
}

// ---- Matrix products: d += a * b, sums in fp32 -------------------------------------------------
// d in all of them: d[0], d[1] are row `group`, columns 2*thread, 2*thread+1; d[2], d[3] row group+8.
// All 32 lanes must arrive: never under a branch that splits the warp.

#define CONVTUNE_MMA(name, shape_and_types)                                                 \
  __device__ inline void name(float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) { \
    asm volatile("mma.sync.aligned." shape_and_types                                        \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));       \
  }
// a: (row, k) = (group, thread), (group+8, thread), (group, thread+4), (group+8, thread+4).
// b: (k, column) = (thread, group), (thread+4, group).
// It reads the upper 19 bits and drops the rest, which truncates: round with cvt_rna_tf32 first.
CONVTUNE_MMA(mma_m16n8k8_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
// Two elements a register, the lower k in the lower half. a: rows and k = (group, 2*thread), (group+8,
// 2*thread), (group, 2*thread+8), (group+8, 2*thread+8). b: (2*thread, group), (2*thread+8, group). bf16 has
// fp32's range, so nothing overflows that did not before.
CONVTUNE_MMA(mma_m16n8k16_f16, "m16n8k16.row.col.f32.f16.f16.f32")
CONVTUNE_MMA(mma_m16n8k16_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
#undef CONVTUNE_MMA

// Half as deep: the first two registers of the deeper one's a, and the first of its b.
#define CONVTUNE_MMA(name, shape_and_types)                                                                 \
  __device__ inline void name(float(&d)[4], unsigned a0, unsigned a1, unsigned b) {                         \
    asm volatile("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                           \
                 : "r"(a0), "r"(a1), "r"(b));                                                               \
  }
CONVTUNE_MMA(mma_m16n8k8_f16, "m16n8k8.row.col.f32.f16.f16.f32")
CONVTUNE_MMA(mma_m16n8k8_bf16, "m16n8k8.row.col.f32.bf16.bf16.f32")
#undef CONVTUNE_MMA

// ---- The larger and the smaller of two numbers; NaN where either of them is NaN -----------------

__device__ inline float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ inline float min_nan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

// ---- Two halves at once ------------------------------------------------------------------------

// The larger of each pair of halves; NaN where either of the pair is NaN.
__device__ inline unsigned max_nan_f16x2(unsigned a, unsigned b) {
  unsigned larger;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
__device__ inline unsigned max_nan_bf16x2(unsigned a, unsigned b) {
  unsigned larger;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

// ---- Barriers by number ------------------------------------------------------------------------

// One of the block's 16 barriers, for some of its warps; 0 is __syncthreads()'.
__device__ inline void bar_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- Approximations of floats, to about a unit in the last place; what is subnormal is zero ---------

__device__ inline float ex2_approx(float exponent) {  // 2 to it
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}
__device__ inline float rcp_approx(float value) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
  return reciprocal;
}

// ---- Conversions -------------------------------------------------------------------------------

// To the nearest TF32, ties away from zero. The result stands where a float's upper 19 bits do; the others
// mean nothing, so it is for the matrix products and not to be added up.
__device__ inline unsigned cvt_rna_tf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// The number in a register's lower half.
__device__ inline float cvt_f32_f16(unsigned bits) {
  float value;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.f32.f16 %0, low;\n}" : "=f"(value) : "r"(bits));
  return value;
}

// Two floats to the nearest even; the instruction takes the upper half first. Beyond 65504 it is Inf.
__device__ inline unsigned cvt_rn_f16x2(float low, float high) {
  unsigned bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

__device__ inline unsigned cvt_rn_bf16x2(float low, float high) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

}  // namespace convtune::ptx
