// Clusters of blocks, for compute capability 9.0: what one block does in the shared memory of another. As
// sm80.cuh: a name is the instruction's; the comment is what bites.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster; what they wrote before is seen behind it. A block must not end
// while others reach into its shared memory.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The address of this block's `address` in the block of that rank, for the instructions below.
__device__ inline unsigned mapa(unsigned address, unsigned rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// With the scope of a block, as it stands: who arrives has read, and written nothing that others shall see,
// and one of a cluster would wait for all of the SM's memory.
__device__ inline void mbarrier_arrive_there_if(unsigned barrier, bool arrives) {
  asm volatile(CONVTUNE_IF("%1") "mbarrier.arrive.shared::cluster.b64 _, [%0];\n}" ::"r"(barrier),
               "r"(static_cast<unsigned>(arrives))
               : "memory");
}

__device__ inline float ld_shared_there(unsigned from) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}

// To the same address in all blocks of `mask`, where it counts as bytes of their barriers at that address.
__device__ inline void bulk_copy_to_all_if(unsigned to, const void* from, unsigned bytes, unsigned barrier,
                                           unsigned mask, bool copies) {
  asm volatile(
      CONVTUNE_IF("%5") "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;\n"
      "}" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(static_cast<unsigned short>(mask)),
      "r"(static_cast<unsigned>(copies))
      : "memory");
}

}  // namespace convtune::ptx
