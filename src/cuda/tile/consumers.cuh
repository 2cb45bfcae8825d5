// Warpgroups that multiply from a ring that another fills, for compute capability 9.0: how they take turns,
// and which registers they have.
#pragma once

#include "cuda/ptx/sm90.cuh"

namespace convtune {

// Consumers with tiles of their own take turns to wait for stages: a barrier knows whether its phase is odd
// and no more, so who leaves stages out must know that others have seen them full. By the block's barriers of
// these numbers, of which 0 is __syncthreads()'.
struct Turns {
  static constexpr unsigned kThreads = 256;
  static __device__ unsigned barrier(int consumer) { return 1 + static_cast<unsigned>(consumer); }
  static __device__ void wait(int consumer) { ptx::bar_sync(barrier(consumer), kThreads); }
  static __device__ void give(int consumer) { ptx::bar_arrive(barrier(consumer), kThreads); }
  // Among consumers that share a tile, each begins when the one before has the lead.
  static __device__ void follow(int consumer) { wait(consumer); }
  static __device__ void lead(int consumer) { give(consumer + 1); }
  // Behind those, for a consumer's own threads.
  static __device__ int own(int consumer) { return 4 + consumer; }
  // Orders two consumers that store from one place, each after the other.
  static __device__ void wait_to_store(int consumer) {
    ptx::bar_sync(7 + static_cast<unsigned>(consumer), kThreads);
  }
  static __device__ void let_store(int consumer) {
    ptx::bar_arrive(7 + static_cast<unsigned>(consumer), kThreads);
  }
};

// Registers of a thread, where the launch bounds leave too few to those that multiply.
template <int kConsumers>
struct ConsumerRegisters {
  static constexpr bool kMove = kConsumers > 1;
  static constexpr int kLoading = kConsumers == 2 ? 40 : 32;
  static constexpr int kMultiplying = kConsumers == 2 ? 232 : 160;
};

}  // namespace convtune
