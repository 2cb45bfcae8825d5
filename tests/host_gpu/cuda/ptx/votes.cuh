// The twin of src/cuda/ptx/votes.cuh.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

inline bool bar_sync_or(unsigned id, unsigned threads, bool mine) {
  return host_gpu::barrier(id, threads, true, mine) != 0;
}

}  // namespace convtune::ptx
