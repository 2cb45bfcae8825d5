// How implicit_gemm_half_sm80.cuh fills its stages: 16 bytes at a time, channels of a pixel for a tap, or
// zeros where there is no pixel; and packed weights, which lie as they are read.
#pragma once

#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::implicit_gemm_half_sm80 {

// The work of a block: tiles, or shares of their sums, one after the other.
//   for (Item<config> item; item.exists(); item.next())
//     for (int step = item.first_step(); step < item.end_step(); ++step)
template <ImplicitGemmHalfSm80 config>
struct Item {
  int index = static_cast<int>(blockIdx.x);

  __device__ bool exists() const { return index < static_cast<int>(config.tiles()) * config.split; }
  __device__ void next() { index += static_cast<int>(gridDim.x); }
  __device__ int tile() const { return index / config.split; }
  __device__ int rank() const { return index % config.split; }
  __device__ int first_step() const { return config.first_step(rank()); }
  __device__ int end_step() const { return config.first_step(rank() + 1); }
};

// Describes a thread's copies: one piece of every copied_rows()-th row of x, and weights; step after step,
// and tile after tile.
template <ImplicitGemmHalfSm80 config>
struct Loader {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kRows = config.row_copies(), kPieces = config.pieces(), kThreads = config.threads();
  static constexpr int kWeightPieces = config.weight_bytes() / 16;
  static constexpr unsigned kNone = ~0u;
  static constexpr int kMaskRows = config.mask_rows();
  static constexpr bool kMasked = kMaskRows > 0;
  const unsigned short* x;
  const uint4* weights;  // this thread's first of all
  int step;
  Item<config> item;
  unsigned input_to, weights_to;    // in the first stage
  unsigned window_to;               // the next window, from the first on
  unsigned first[kRows];            // where windows begin, a piece of x
  unsigned inside[config.masks()];  // bits of taps that meet the image, of rows in turn

  __device__ __forceinline__ Loader(const unsigned short* __restrict__ from, const float* __restrict__ packed,
                                    unsigned smem)
      : x(from), weights(reinterpret_cast<const uint4*>(packed) + threadIdx.x), window_to(0) {
    const int first_row = static_cast<int>(threadIdx.x) / kPieces;
    weights_to = smem + config.weights_at() + 16 * threadIdx.x;
    input_to = smem + first_row * config.row_bytes() + 16 * config.exchanged(first_row, piece());
    begin();
  }

  // Steps of the item until turn() is due; where there is no item, more than there are.
  __device__ __forceinline__ int left() const { return item.exists() ? item.end_step() - step : 1 << 30; }
  // To the next item, if there is nothing left of this one. Not a part of load(), in which the compiler would
  // have every step go through all of begin(), for nothing but at an item's end.
  __device__ __forceinline__ void turn() {
    if (left() > 0) return;
    item.next();
    begin();
  }
  // Loads what the next step multiplies, if there is one, to `slot_bytes` behind the first stage. Commits
  // nothing.
  __device__ __forceinline__ void load(unsigned slot_bytes) {
    if (!item.exists()) return;
    if constexpr (config.window) {
      if (step % config.taps() == 0) load_window(step / config.taps());
    } else {
      load_tap(slot_bytes);
    }
    load_weights(slot_bytes);
    ++step;
  }

 private:
  __device__ __forceinline__ void begin() {
    step = item.first_step();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const ImplicitGemmHalfSm80::Pixel at = config.first_tap(position(i));
      first[i] = config.piece_at(at) + config.group(item.tile()) * config.group_pieces() +
                 (config.chunked() ? piece() : 0);
      if constexpr (config.window) {
        if (!config.is_inside(at)) first[i] = kNone;
      } else if constexpr (kMasked) {
        unsigned columns = 0;
#pragma unroll
        for (int s = 0; s < a.s; ++s)
          columns |= config.is_inside({at.image, 0, at.column + s * a.dilation_w}) ? 1u << s : 0;
        constexpr int kBits = config.taps();
        unsigned& mask = inside[i / kMaskRows];
        if (i % kMaskRows == 0) mask = 0;
#pragma unroll
        for (int r = 0; r < a.r; ++r)
          mask |= config.is_inside({0, at.row + r * a.dilation_h, 0})
                      ? columns << (i % kMaskRows * kBits + r * a.s)
                      : 0;
      }
    }
  }
  __device__ static int piece() {
    return static_cast<int>(threadIdx.x) % kPieces;
  }
  __device__ __forceinline__ int position(int i) const {
    return config.first_position(item.tile()) + static_cast<int>(threadIdx.x) / kPieces +
           i * config.copied_rows();
  }
  __device__ __forceinline__ void load_window(int chunk) {
    const auto behind = static_cast<unsigned>(chunk * kPieces);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      copy(input_to + window_to + i * (config.copied_rows() * config.row_bytes()), first[i] + behind,
           first[i] != kNone);
    window_to = config.input_bytes() - window_to;
  }
  __device__ __forceinline__ void load_tap(unsigned slot_bytes) const {
    // In chunks threads differ by their piece alone, which stands in `first`.
    const ImplicitGemmHalfSm80::Term term = config.term(step, config.chunked() ? 0 : piece());
    const int below = config.tap_row(term.tap), right = config.tap_column(term.tap);
    const unsigned behind = config.piece_at({0, below, right}) + static_cast<unsigned>(term.piece);
    const unsigned to = input_to + slot_bytes, tap = 1u << term.tap;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      bool is_inside = false;
      if constexpr (kMasked) {
        is_inside = (inside[i / kMaskRows] & tap << (i % kMaskRows * config.taps())) != 0;
      } else {
        const ImplicitGemmHalfSm80::Pixel at = config.first_tap(position(i));
        is_inside = config.is_inside({at.image, at.row + below, at.column + right});
      }
      // Behind the last term of all there is none.
      if constexpr (config.ragged()) is_inside = is_inside && term.tap < config.taps();
      copy(to + i * (config.copied_rows() * config.row_bytes()), first[i] + behind, is_inside);
    }
  }
  __device__ __forceinline__ void load_weights(unsigned slot_bytes) const {
    const int block = item.tile() % config.filter_blocks();
    const uint4* const from =
        weights + (static_cast<long long>(block) * config.steps() + step) * kWeightPieces;
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
