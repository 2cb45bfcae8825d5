// Counters in global memory at which blocks of a grid learn of each other, for compute capability 9.0: who
// came last, and whether all have come. By one thread of a block, behind a barrier of those that wrote what
// others shall see; in front of one for those that read it.
#pragma once

namespace convtune::ptx {

// Comes to a counter that `last` others come to, and returns how many did before. The last one leaves it at 0,
// as it was.
__device__ inline unsigned come_to(unsigned* counter, unsigned last) {
  unsigned before;
  asm volatile(
      "fence.acq_rel.gpu;\natom.relaxed.gpu.global.inc.u32 %0, [%1], %2;\nfence.acq_rel.gpu;"
      : "=r"(before)
      : "l"(counter), "r"(last)
      : "memory");
  return before;
}
// Looks so many times, a few hundred nanoseconds apart, whether a counter that this block has come to is at 0
// again.
__device__ inline bool all_have_come(const unsigned* counter, int times) {
  unsigned count = 1;
#pragma unroll 1
  for (int i = 0; i < times && count != 0; ++i)
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count == 0;
}
// Of two blocks that each write, call this, and read what the other wrote, one sees it.
__device__ inline void fence_both_ways() {
  asm volatile("fence.sc.gpu;" ::: "memory");
}
// Reads what another block of the grid wrote: not from this multiprocessor's cache.
__device__ inline float4 ld_of_grid(const float4* from) {
  float4 four;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "l"(from)
               : "memory");
  return four;
}
__device__ inline float ld_of_grid(const float* from) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}

}  // namespace convtune::ptx
