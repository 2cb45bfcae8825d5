// Blocks of a cluster that send each other what they have in shared memory, and wait for each other in two
// halves. As cluster.cuh.
#pragma once

#include "cuda/ptx/cluster.cuh"

namespace convtune::ptx {

// cluster_sync() in two halves, for who has work between them; each thread does both. What it wrote before is
// not promised to be seen behind it: that would wait for all of the SM's memory.
__device__ inline void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
// As above, for who has read in other blocks before, which must not have ended by then.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// From this block's shared memory to another's, where it counts as bytes of a barrier there; whoever wrote it
// needs fence_proxy_async(). Both addresses are aligned to 16, and `bytes` is a multiple of it.
__device__ inline void bulk_copy_there_if(unsigned to, unsigned from, unsigned bytes, unsigned barrier,
                                          bool copies) {
  asm volatile(
      CONVTUNE_IF("%4") "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];\n}" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier), "r"(static_cast<unsigned>(copies))
      : "memory");
}

}  // namespace convtune::ptx
