// A ring of stages in shared memory that some threads fill and others empty. Two barriers a stage, 8 bytes
// each, tell of it: `full` and `empty`, arrays whose addresses its users keep.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune {

// One thread's place in the ring: a slot and the parity of its phase, counted on without a division.
template <int kSlots>
struct Ring {
  int slot = 0;
  unsigned parity = 0;

  __device__ void next() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
  template <int kStages>
  __device__ void skip() {  // this many
    slot += kStages % kSlots;
    const bool laps = slot >= kSlots;
    if (laps) slot -= kSlots;
    parity ^= (kStages / kSlots + laps) & 1;
  }
  __device__ unsigned barrier(unsigned barriers) const { return barriers + 8 * slot; }
  __device__ void wait_full(unsigned full) const { ptx::mbarrier_wait(barrier(full), parity); }
  // For a barrier that nobody has arrived at, the phase before the first counts as complete: in the first lap
  // no filler waits.
  __device__ void wait_empty(unsigned empty) const { ptx::mbarrier_wait(barrier(empty), parity ^ 1); }

  // By one thread, before fence_mbarrier_init(): how many arrive when a stage is full, and when it is empty.
  __device__ static void init(unsigned full, unsigned fillers, unsigned empty, unsigned emptiers) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::mbarrier_init(full + 8 * i, fillers);
      ptx::mbarrier_init(empty + 8 * i, emptiers);
    }
  }
};

}  // namespace convtune
