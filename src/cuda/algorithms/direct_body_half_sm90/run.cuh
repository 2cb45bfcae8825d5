// Halves that direct_body_half_sm90.cuh moves at once between a tensor in NCHW and shared memory.
#pragma once

#include "cuda/ptx/shared.cuh"
#include "cuda/tile/arithmetic.h"

namespace convtune::direct_body_half_sm90 {

// Halves beside each other: in a tensor from a multiple of as many on, in shared memory of kPiece.
template <int kHalves, int kPiece>
struct Run {
  static constexpr int kWords = greater(kHalves / 2, 1);
  unsigned words[kWords];

  __device__ __forceinline__ void load(const unsigned short* __restrict__ from) {
    if constexpr (kHalves == 1) words[0] = *from;
    if constexpr (kHalves == 2) words[0] = *reinterpret_cast<const unsigned*>(from);
    if constexpr (kHalves == 4) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      words[0] = two.x, words[1] = two.y;
    }
    if constexpr (kHalves == 8) {
      const uint4 four = *reinterpret_cast<const uint4*>(from);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
  }
  __device__ __forceinline__ void store(unsigned short* __restrict__ to) const {
    if constexpr (kHalves == 1) *to = static_cast<unsigned short>(words[0]);
    if constexpr (kHalves == 2) *reinterpret_cast<unsigned*>(to) = words[0];
    if constexpr (kHalves == 4) *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
    if constexpr (kHalves == 8) *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  }
  __device__ __forceinline__ void load_shared(unsigned from) {
    if constexpr (kPiece == 8) {
      ptx::ld_shared_v4(words, from);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = kPiece > 1 ? ptx::ld_shared(from + 4 * i) : ptx::ld_shared_u16(from + 4 * i);
        if constexpr (kHalves > 1 && kPiece == 1) words[i] |= ptx::ld_shared_u16(from + 4 * i + 2) << 16;
      }
    }
  }
  __device__ __forceinline__ void store_shared(unsigned to) const {
    if constexpr (kPiece == 8) {
      ptx::st_shared_v4(to, words);
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if constexpr (kPiece > 1) ptx::st_shared(to + 4 * i, words[i]);
        if constexpr (kPiece == 1) ptx::st_shared_u16(to + 4 * i, words[i]);
        if constexpr (kHalves > 1 && kPiece == 1) ptx::st_shared_u16(to + 4 * i + 2, words[i] >> 16);
      }
    }
  }
};

}  // namespace convtune::direct_body_half_sm90
