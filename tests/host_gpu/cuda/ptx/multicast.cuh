// The twin of src/cuda/ptx/multicast.cuh.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

inline void load_box_to_all_if(unsigned to, const TensorMap* map, int x0, int x1, int x2, int x3, int x4,
                               unsigned barrier, unsigned mask, bool loads) {
  const auto in_block = [](unsigned address, unsigned rank) {
    return address % host_gpu::kWindow + rank * host_gpu::kWindow;
  };
  for (unsigned rank = 0; mask >> rank > 0; ++rank)
    if (mask >> rank & 1)
      load_box_if(in_block(to, rank), map, x0, x1, x2, x3, x4, in_block(barrier, rank), loads);
}

}  // namespace convtune::ptx
