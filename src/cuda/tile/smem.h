// A block's shared memory as one list of regions: a config names them in order with their sizes, the host
// learns how much that is, and the kernel where each begins.
//
//   constexpr Smem smem() const {
//     SmemPlan plan;
//     return {.stages = plan.take(kStages * kStageBytes), .full = plan.take(8 * kStages), .end = plan.end};
//   }
#pragma once

namespace convtune {

struct SmemPlan {
  long long end = 0;  // the size of what has been taken: bytes, floats or words, as the config counts

  // Returns the offset of a region of `size`, behind all that were taken before. It means nothing where all
  // are more than any SM has, which `end` tells.
  constexpr int take(long long size) {
    const long long begin = end;
    end += size;
    return static_cast<int>(begin);
  }
};

}  // namespace convtune
