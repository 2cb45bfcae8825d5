// Boxes of tensors that come to all blocks of a cluster, for compute capability 9.0.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

// To the same address in all blocks of `mask`, where it counts as bytes of their barriers at that address.
__device__ inline void load_box_to_all_if(unsigned to, const TensorMap* map, int x0, int x1, int x2, int x3,
                                          int x4, unsigned barrier, unsigned mask, bool loads) {
  asm volatile(
      CONVTUNE_IF("%9") "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;\n"
      "}" ::"r"(to),
      "l"(map), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(barrier), "h"(static_cast<unsigned short>(mask)),
      "r"(static_cast<unsigned>(loads))
      : "memory");
}

}  // namespace convtune::ptx
