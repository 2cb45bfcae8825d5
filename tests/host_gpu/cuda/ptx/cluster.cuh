// The twin of src/cuda/ptx/cluster.cuh.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

inline unsigned cluster_rank() {
  return host_gpu::cluster_rank();
}
inline void cluster_sync() {
  host_gpu::cluster_sync();
}
inline unsigned mapa(unsigned address, unsigned rank) {
  return address % host_gpu::kWindow + rank * host_gpu::kWindow;
}
inline void mbarrier_arrive_there_if(unsigned barrier, bool arrives) {
  if (arrives) host_gpu::mbarrier_arrive(barrier);
}
inline float ld_shared_there(unsigned from) {
  host_gpu::check_lives(from);
  return host_gpu::load<float>(from);
}
inline void bulk_copy_to_all_if(unsigned to, const void* from, unsigned bytes, unsigned barrier,
                                unsigned mask, bool copies) {
  if (copies) host_gpu::bulk_load_to_all(to, from, bytes, barrier, mask);
}

}  // namespace convtune::ptx
