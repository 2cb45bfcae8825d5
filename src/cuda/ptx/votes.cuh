// Barriers that also say whether a thread of those that came has something to tell.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

// As bar_sync(), and true where `mine` is true of a thread.
__device__ inline bool bar_sync_or(unsigned id, unsigned threads, bool mine) {
  unsigned any;
  asm volatile(
      "{\n.reg .pred mine, any;\nsetp.ne.b32 mine, %3, 0;\nbar.red.or.pred any, %1, %2, mine;\n"
      "selp.b32 %0, 1, 0, any;\n}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<unsigned>(mine))
      : "memory");
  return any != 0;
}

}  // namespace convtune::ptx
