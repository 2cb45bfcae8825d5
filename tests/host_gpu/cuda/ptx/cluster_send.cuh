// The twin of src/cuda/ptx/cluster_send.cuh.
#pragma once

#include "cuda/ptx/cluster.cuh"

namespace convtune::ptx {

inline void cluster_arrive_relaxed() {
  host_gpu::cluster_arrive(false);
}
inline void cluster_arrive() {
  host_gpu::cluster_arrive(true);
}
inline void cluster_wait() {
  host_gpu::cluster_wait();
}
inline void bulk_copy_there_if(unsigned to, unsigned from, unsigned bytes, unsigned barrier, bool copies) {
  if (copies) host_gpu::bulk_send(to, from, bytes, barrier);
}

}  // namespace convtune::ptx
