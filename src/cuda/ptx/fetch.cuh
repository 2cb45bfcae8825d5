// Prefetches of what a kernel reads soon. One function an instruction, as in sm90.cuh.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune::ptx {

// The map, which is an argument of the kernel: the first copy by it would wait for it to come.
__device__ inline void fetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

}  // namespace convtune::ptx
