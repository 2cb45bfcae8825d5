// One function an instruction, for compute capability 9.0 (sm_90a): barriers in shared memory that count
// arrivals, and copies in bulk. Matrix products are wgmma.cuh's. As sm80.cuh: a name is the
// instruction's; the comment is what bites.
#pragma once

#include "cuda/ptx/sm80.cuh"

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

// An arrival once all cp.async of this thread so far have been written: one of those that init() counts.
__device__ inline void cp_async_mbarrier_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Without a branch, which matrix products that are under way do not like.
__device__ inline void mbarrier_arrive_if(unsigned barrier, bool arrives) {
  asm volatile(CONVTUNE_IF("%1") "mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier),
               "r"(static_cast<unsigned>(arrives))
               : "memory");
}

// An arrival; the phase also waits for `bytes` bytes of bulk copies. These and the copies below come with
// their condition inside: in a branch the compiler would not know their operands to be a warp's and not a
// thread's.
__device__ inline void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ inline void mbarrier_arrive_expect_if(unsigned barrier, unsigned bytes, bool arrives) {
  asm volatile(CONVTUNE_IF("%2") "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n}" ::"r"(barrier),
               "r"(bytes), "r"(static_cast<unsigned>(arrives))
               : "memory");
}

// ---- Bulk copies -------------------------------------------------------------------------------
// By one thread. Both addresses are aligned to 16, and `bytes` is a multiple of it.

__device__ inline void bulk_copy_to_shared(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ inline void bulk_copy_to_shared_if(unsigned to, const void* from, unsigned bytes, unsigned barrier,
                                              bool copies) {
  asm volatile(
      CONVTUNE_IF(
          "%4") "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
                "[%3];\n}" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "r"(static_cast<unsigned>(copies))
      : "memory");
}

// Into L2: whatever the alignment, all 16-byte pieces that hold one of the bytes.
__device__ inline void prefetch_l2_if(const void* from, unsigned bytes, bool fetches) {
  const unsigned long long begin = reinterpret_cast<unsigned long long>(from) & ~15ull;
  const unsigned long long end = (reinterpret_cast<unsigned long long>(from) + bytes + 15) & ~15ull;
  asm volatile(CONVTUNE_IF("%2") "cp.async.bulk.prefetch.L2.global [%0], %1;\n}" ::"l"(begin),
               "r"(static_cast<unsigned>(end - begin)), "r"(static_cast<unsigned>(fetches))
               : "memory");
}

// Whatever was written to shared memory before needs fence_proxy_async() by its writers.
__device__ inline void bulk_copy_to_global(void* to, unsigned from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

__device__ inline void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until this thread's bulk copies to global memory have read their sources.
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Until at most kPending of this thread's groups have yet to read their sources.
template <int kPending>
__device__ inline void bulk_wait_read_but() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Until all of this thread's bulk copies to global memory have been written.
__device__ inline void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// A box of a tensor of three extents, by its map, which the host made (cuTensorMapEncodeTiled) and which is a
// parameter of the kernel. Shared memory is aligned to 128; the innermost coordinate is that of a multiple of
// 16 bytes, or the instruction is illegal. What lies outside of the tensor is not
// written, but a box cannot begin before it.
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};
__device__ inline void store_box_if(const TensorMap* map, int x0, int x1, int x2, unsigned from,
                                    bool stores) {
  asm volatile(
      CONVTUNE_IF(
          "%5") "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n}" ::
          "l"(map),
      "r"(x0), "r"(x1), "r"(x2), "r"(from), "r"(static_cast<unsigned>(stores))
      : "memory");
}

// As above, for five extents.
__device__ inline void store_box_if(const TensorMap* map, int x0, int x1, int x2, int x3, int x4,
                                    unsigned from, bool stores) {
  asm volatile(
      CONVTUNE_IF("%7") "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];\n}" ::"l"(map),
      "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(from), "r"(static_cast<unsigned>(stores))
      : "memory");
}

// The other way, of five extents. What lies outside of the tensor is zero.
__device__ inline void load_box_if(unsigned to, const TensorMap* map, int x0, int x1, int x2, int x3, int x4,
                                   unsigned barrier, bool loads) {
  asm volatile(
      CONVTUNE_IF("%8") "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7];\n"
      "}" ::"r"(to),
      "l"(map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(barrier), "r"(static_cast<unsigned>(loads))
      : "memory");
}

// As above, for what is read once and is not wanted again soon: L2 gives its place away before any other, so
// that it need not write back what was there before. The policy is as in cp_async_16_once_if().
__device__ inline void load_box_once_if(unsigned to, const TensorMap* map, int x0, int x1, int x2, int x3,
                                        int x4, unsigned barrier, bool loads) {
  asm volatile(
      CONVTUNE_IF("%8") "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %9;\n"
      "}" ::"r"(to),
      "l"(map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(barrier), "r"(static_cast<unsigned>(loads)),
      "l"(0x12f0000000000000ull)
      : "memory");
}

// As above, as far as L2.
__device__ inline void prefetch_box_if(const TensorMap* map, int x0, int x1, int x2, int x3, int x4,
                                       bool fetches) {
  asm volatile(
      CONVTUNE_IF(
          "%6") "cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];\n}" ::"l"(map),
      "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(static_cast<unsigned>(fetches))
      : "memory");
}

// A load of two extents.
__device__ inline void load_rows_if(unsigned to, const TensorMap* map, int x0, int x1, unsigned barrier,
                                    bool loads) {
  asm volatile(
      CONVTUNE_IF("%5") "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];\n"
      "}" ::"r"(to),
      "l"(map), "r"(x0), "r"(x1), "r"(barrier), "r"(static_cast<unsigned>(loads))
      : "memory");
}

// As above, for what is read once.
__device__ inline void load_rows_once_if(unsigned to, const TensorMap* map, int x0, int x1, unsigned barrier,
                                         bool loads) {
  asm volatile(
      CONVTUNE_IF("%5") "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %6;\n"
      "}" ::"r"(to),
      "l"(map), "r"(x0), "r"(x1), "r"(barrier), "r"(static_cast<unsigned>(loads)), "l"(0x12f0000000000000ull)
      : "memory");
}

// Pixels of channels-last images by a map for that (cuTensorMapEncodeIm2col): from `channel` on, of the pixel
// at (image, row, column) and of those that follow in the map's walk, over rows and images; each so far
// behind where the walk is. What lies outside of the image is zero.
__device__ inline void load_pixels_if(unsigned to, const TensorMap* map, int channel, int column, int row,
                                      int image, int columns_on, int rows_on, unsigned barrier, bool loads) {
  asm volatile(
      CONVTUNE_IF("%9") "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%8], {%6, %7};\n"
      "}" ::"r"(to),
      "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "h"(static_cast<unsigned short>(columns_on)),
      "h"(static_cast<unsigned short>(rows_on)), "r"(barrier), "r"(static_cast<unsigned>(loads))
      : "memory");
}

// As above, of images of several frames, over which the walk goes, too.
__device__ inline void load_frame_pixels_if(unsigned to, const TensorMap* map, int channel, int column,
                                            int row, int frame, int image, int columns_on, int rows_on,
                                            int frames_on, unsigned barrier, bool loads) {
  asm volatile(
      CONVTUNE_IF("%11") "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%9], {%7, %8, %10};\n"
      "}" ::"r"(to),
      "l"(map), "r"(channel), "r"(column), "r"(row), "r"(frame), "r"(image),
      "h"(static_cast<unsigned short>(columns_on)), "h"(static_cast<unsigned short>(rows_on)), "r"(barrier),
      "h"(static_cast<unsigned short>(frames_on)), "r"(static_cast<unsigned>(loads))
      : "memory");
}
// As above, where channels are those of one of several groups, one more extent behind the images.
__device__ inline void load_group_pixels_if(unsigned to, const TensorMap* map, int channel, int column,
                                            int row, int image, int group, int columns_on, int rows_on,
                                            unsigned barrier, bool loads) {
  load_frame_pixels_if(to, map, channel, column, row, image, group, columns_on, rows_on, 0, barrier, loads);
}

// ---- Matrix stores -----------------------------------------------------------------------------
// Four 8x8 matrices of 16-bit elements, each transposed, the other way round than ldmatrix_x4_trans: lanes
// 8i..8i+7 give the addresses of matrix i's rows, and lane l's elements are rows 2*thread, 2*thread+1 of
// column `group`.
__device__ inline void stmatrix_x4_trans(unsigned row_address, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// As above, as they lie: lane l's elements are columns 2*thread, 2*thread+1 of row `group`.
__device__ inline void stmatrix_x4(unsigned row_address, const unsigned (&from)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
               "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
               : "memory");
}

// ---- Conversions -------------------------------------------------------------------------------
// Rounds to TF32 as IEEE does, ties to even, in one instruction (cvt_rna_tf32 is two and a test).
__device__ inline unsigned cvt_rn_tf32(float value) {
  unsigned bits;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// ---- Registers, and barriers by number ---------------------------------------------------------
// Registers of a thread from here on, a multiple of 8: all warps of a warpgroup. Some leave what others take,
// and those wait for it.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// bar_sync() without waiting, for warps that others wait for: all are counted.
__device__ inline void bar_arrive(unsigned id, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Whatever this thread wrote to shared memory becomes visible to matrix products: by the writer, before it
// tells anybody.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace convtune::ptx
