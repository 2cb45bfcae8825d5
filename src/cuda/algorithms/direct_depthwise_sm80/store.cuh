// How direct_depthwise_sm80.cuh stores a strip, with what is added to it; and a tile computed exactly, where
// a weight is not finite.
#pragma once

#include "cuda/algorithms/direct_depthwise_sm80/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_depthwise_sm80 {

// Tells whether a strip's output is one of the image's; p, q: the first.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ bool is_output(int p, int q, int row, int column) {
  constexpr ConvExtents a = config.conv;
  return (a.p % config.rows == 0 || p + row < a.p) && (a.q % config.columns == 0 || q + column < a.q);
}

// The four threads that have the same strip of neighbouring words.
__device__ __forceinline__ void sync_neighbours() {
  __syncwarp(0xfu << (threadIdx.x % 32 / 4 * 4));
}

// Fetches what is added to a strip's outputs, on its way: each of four neighbours copies every fourth output
// of all four, 16 bytes. Words of its own would come through L1, of which shared memory leaves little.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void fetch_residual(const Element<config>* __restrict__ residual, unsigned to,
                                               int p, int q) {
  constexpr ConvExtents a = config.conv;
  const int neighbour = static_cast<int>(threadIdx.x) % 4;
  const Element<config>* const from = residual - neighbour * config.word();
  const unsigned there = to - 4 * neighbour;
#pragma unroll
  for (int begin = 0; begin < config.rows * config.columns; begin += 4) {
    const int output = begin + neighbour, row = output / config.columns, column = output % config.columns;
    if ((begin + 4 <= config.rows * config.columns || row < config.rows) &&
        is_output<config>(p, q, row, column))
      ptx::cp_async_16(there + 4 * output * config.threads(), from + (row * a.q + column) * a.c, 16);
  }
}

// `to`: the strip's first output, which is p, q; `residual`: what is added to it, which is in shared memory
// from `waiting` on where it has been fetched. `both`: a word's second channel is there.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void store(const Sums<config>& sums, const Channels<config>& bias,
                                      const Element<config>* __restrict__ residual, unsigned waiting,
                                      Element<config>* __restrict__ to, int p, int q, bool both) {
  constexpr ConvExtents a = config.conv;
  const auto exists = [&](int row, int column) { return is_output<config>(p, q, row, column); };
  constexpr int kTogether = config.residual_by_rows || config.waits() ? 1 : config.rows;
#pragma unroll
  for (int begin = 0; begin < config.rows; begin += kTogether) {
    const auto each = [&](const auto& output) {
#pragma unroll
      for (int row = begin; row < lesser(begin + kTogether, config.rows); ++row)
#pragma unroll
        for (int column = 0; column < config.columns; ++column)
          output(row, column, (row * a.q + column) * a.c);
    };
    // Opaque, or rows to come would be loaded, and kept, before this one is stored.
    if constexpr (config.residual_by_rows) asm volatile("" : "+l"(residual)::"memory");
    unsigned residuals[kTogether][config.columns] = {};  // under way together
    if constexpr (a.residual)
      each([&](int row, int column, int at) {
        if (!exists(row, column)) return;
        unsigned& word = residuals[row - begin][column];
        if constexpr (config.waits())
          word = ptx::ld_shared(waiting + 4 * (row * config.columns + column) * config.threads());
        else if constexpr (config.width < config.word())
          word = residual[at];
        else if constexpr (config.words())
          word = *reinterpret_cast<const unsigned*>(residual + at);
        else
          word = halves_at(residual + at, both);
      });
    each([&](int row, int column, int at) {
      const Channels<config>& sum = sums[row][column];
      const unsigned added = residuals[row - begin][column];
      if constexpr (config.width == 1) {
        Channels<config> more;
        widen<config>(more, added);
        const float value = finish<config.conv, SumsBegin::at_bias>(sum[0], bias[0], more[0]);
        if constexpr (config.word() == 1)
          ptx::st_global_if(to + at, value, exists(row, column));
        else if (exists(row, column))
          to[at] = static_cast<unsigned short>(pack_halves<a.y_type>(value, 0));
      } else {
        const unsigned word =
            finish_halves<config.conv, SumsBegin::at_bias>(sum[0], bias[0], sum[1], bias[1], added);
        if constexpr (config.words()) {
          ptx::st_global_if(reinterpret_cast<float*>(to + at), __uint_as_float(word), exists(row, column));
        } else if (exists(row, column)) {
          to[at] = static_cast<unsigned short>(word);
          if (both) to[at + 1] = static_cast<unsigned short>(word >> 16);
        }
      }
    });
  }
}

// Everything, slowly: where a weight is not finite.
template <DirectDepthwiseSm80 config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             void* __restrict__ y, const void* __restrict__ residual,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.tile_rows() * config.tile_columns() * config.channels;
       i += config.threads()) {
    const int k = part.first_channel() + i % config.channels, at = i / config.channels;
    const int p = part.band * config.tile_rows() + at / config.tile_columns();
    const int q = part.side * config.tile_columns() + at % config.tile_columns();
    if (p >= a.p || q >= a.q || k >= a.c) continue;
    store_exact_output<config>(x, packed, residual, y, part.image, k, p, q);
  }
}

}  // namespace convtune::direct_depthwise_sm80
