// How implicit_gemm_half_sm80.cuh fills its stages: 16 bytes at a time, channels of a pixel for a tap, or
// zeros where there is no pixel; and packed weights, which lie as they are read.
#pragma once

#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::implicit_gemm_half_sm80 {

// What a thread copies: one piece of every copied_rows()-th row.
//   stage   copies for a tap, or the weights of one and before the first tap of a chunk its window
template <ImplicitGemmHalfSm80 config>
struct Loader {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kRows = config.row_copies(), kPieces = config.pieces(), kThreads = config.threads();
  static constexpr int kWeightPieces = config.weight_bytes() / 16;
  const unsigned short* x;
  const uint4* weights;  // this thread's first of the first stage
  int piece;
  unsigned input_to, weights_to;  // in the first stage
  unsigned first[kRows];          // where windows begin, a piece of x
  int row[config.window ? 1 : kRows], column[config.window ? 1 : kRows];
  static constexpr unsigned kNone = ~0u;

  __device__ __forceinline__ Loader(const unsigned short* __restrict__ from, const float* __restrict__ packed,
                                    int tile, unsigned smem)
      : x(from), piece(static_cast<int>(threadIdx.x) % kPieces) {
    const int thread = static_cast<int>(threadIdx.x), first_row = thread / kPieces;
    weights = reinterpret_cast<const uint4*>(packed) +
              static_cast<long long>(tile % config.filter_blocks()) * config.steps() * kWeightPieces + thread;
    weights_to = smem + config.weights_at() + 16 * thread;
    input_to = smem + first_row * config.row_bytes() + 16 * config.exchanged(first_row, piece);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int position = config.first_position(tile) + first_row + i * config.copied_rows();
      const ImplicitGemmHalfSm80::Pixel at = config.first_tap(position);
      first[i] = config.piece_at(at);
      if constexpr (config.window) {
        if (!config.is_inside(at)) first[i] = kNone;
      } else {
        row[i] = position < static_cast<int>(config.positions()) ? at.row : ImplicitGemmHalfSm80::kOutside;
        column[i] = at.column;
      }
    }
  }

  // What a step multiplies, to `slot_bytes` behind the first stage. Commits nothing.
  __device__ __forceinline__ void load(int step, unsigned slot_bytes) const {
    if constexpr (config.window) {
      if (step % config.taps() == 0) load_window(step / config.taps());
    } else {
      load_tap(step, slot_bytes);
    }
    load_weights(step, slot_bytes);
  }

 private:
  __device__ __forceinline__ void load_window(int chunk) const {
    const unsigned to = input_to + chunk % 2 * config.input_bytes();
    const auto behind = static_cast<unsigned>(chunk * kPieces + piece);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      copy(to + i * (config.copied_rows() * config.row_bytes()), first[i] + behind, first[i] != kNone);
  }
  __device__ __forceinline__ void load_tap(int step, unsigned slot_bytes) const {
    const ImplicitGemmHalfSm80::Term term = config.term(step, piece);
    const int below = config.ragged() && term.tap >= config.taps() ? ImplicitGemmHalfSm80::kOutside
                                                                   : config.tap_row(term.tap);
    const int right = config.tap_column(term.tap);
    const unsigned behind = config.piece_at({0, below, right}) + static_cast<unsigned>(term.piece);
    const unsigned to = input_to + slot_bytes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool inside = static_cast<unsigned>(row[i] + below) < static_cast<unsigned>(a.h) &&
                          static_cast<unsigned>(column[i] + right) < static_cast<unsigned>(a.w);
      copy(to + i * (config.copied_rows() * config.row_bytes()), first[i] + behind, inside);
    }
  }
  __device__ __forceinline__ void load_weights(int step, unsigned slot_bytes) const {
    const uint4* const from = weights + static_cast<long long>(step) * kWeightPieces;
#pragma unroll
    for (int i = 0; i < config.weight_copies(); ++i) {
      constexpr int kLast = kWeightPieces / kThreads;  // from where on not all threads copy
      ptx::cp_async_16_if(weights_to + slot_bytes + i * (16 * kThreads), from + i * kThreads, 16,
                          i < kLast || static_cast<int>(threadIdx.x) + i * kThreads < kWeightPieces);
    }
  }

  // Through L1 where other taps read the same.
  __device__ __forceinline__ void copy(unsigned to, unsigned from, bool inside) const {
    const unsigned short* const at = x + 8 * static_cast<unsigned long long>(from);
    if constexpr (!config.aligned) {
      unsigned words[4] = {0, 0, 0, 0};
      if (inside)
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = at[2 * i] | static_cast<unsigned>(at[2 * i + 1]) << 16;
      ptx::st_shared_v4(to, words);
    } else if constexpr (config.taps() > 1 && !config.window) {
      ptx::cp_async_16_cached(to, at, inside ? 16 : 0);
    } else {
      ptx::cp_async_16(to, at, inside ? 16 : 0);
    }
  }
};

}  // namespace convtune::implicit_gemm_half_sm80
