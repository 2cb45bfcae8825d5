// How direct_grouped_half.cuh loads: a tile's pixels into shared memory, and the weights of a warp.
#pragma once

#include "cuda/algorithms/direct_grouped_half/config.h"
#include "cuda/ptx/sm80.cuh"

namespace convtune::direct_grouped_half {

// Describes a block's work at a time: chunks beside each other, so that one finds in L2 what another
// has read.
template <DirectGroupedHalf config>
struct Part {
  int chunk, side, band, frame;  // frame: of all images

  __device__ explicit Part(unsigned block) {
    chunk = static_cast<int>(block % config.chunks());
    block /= config.chunks();
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    band = static_cast<int>(block % config.bands());
    frame = static_cast<int>(block / config.bands());
  }
  __device__ int first_filter() const { return chunk * config.filters; }
  __device__ int p() const { return band * config.tile_rows(); }
  __device__ int q() const { return side * config.tile_columns(); }
};

// A frame of a tile: rows by warps, columns and their pieces by lanes. It has zeros where there is none.
template <DirectGroupedHalf config>
__device__ __forceinline__ void load_frame(const unsigned short* __restrict__ x, const Part<config>& part,
                                           int t, unsigned to, int warp, int lane) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = config.pieces();
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const int first_channel = 8 * config.chunk_piece(part.chunk);
  const int in_image = part.frame % a.z * a.stride_d - a.pad_front + t * a.dilation_d;
  const bool exists = !a.has_depth() || (in_image >= 0 && in_image < a.d);
  const int frame = a.has_depth() ? part.frame / a.z * a.d + in_image : part.frame;
  const unsigned short* const image = x + static_cast<long long>(frame) * (a.h * a.w * a.c);
  constexpr int kRows = config.input_rows(), kTurns = ceil_div(kRows, config.warps);
#pragma unroll 1
  for (unsigned i = lane; i < config.input_columns() * kPieces; i += 32) {
    const int piece = i % kPieces, tile_column = i / kPieces;
    const int column = left + tile_column, channel = first_channel + 8 * piece;
    const bool inside = exists && column >= 0 && column < a.w && channel < a.c;
    // In 64 bits: rows of padding above an image may be more than its own.
    const unsigned short* const from =
        image + static_cast<long long>(top + warp) * (a.w * a.c) + column * a.c + channel;
    const unsigned there = to + 16 * piece + config.column_offset(tile_column) + warp * config.row_bytes();
    // Conditions within statements: loops of a few rows each, with a branch a row, took half of all
    // instructions.
#pragma unroll(kTurns <= 8 ? kTurns : 4)
    for (int turn = 0; turn < kTurns; ++turn) {
      const int row = warp + turn * config.warps;
      const bool wanted = (kRows % config.warps == 0 && kTurns <= 8) || row < kRows;
      const bool here = inside && wanted && static_cast<unsigned>(top + row) < static_cast<unsigned>(a.h);
      const unsigned short* const pixel = here ? from + turn * (1LL * config.warps * a.w * a.c) : x;
      const unsigned into = there + turn * (config.warps * config.row_bytes());
      if constexpr (config.aligned && a.c % 8 == 0) {
        ptx::cp_async_16_if(into, pixel, here ? 16 : 0, wanted);
      } else if (wanted) {
        unsigned words[4] = {};
#pragma unroll
        for (int half = 0; half < 8; ++half)
          if (here && channel + half < a.c)
            words[half / 2] |= static_cast<unsigned>(pixel[half]) << (half % 2 * 16);
        ptx::st_shared_v4(into, words);
      }
    }
  }
}

template <DirectGroupedHalf config>
__device__ __forceinline__ void load_tile(const unsigned short* __restrict__ x, const Part<config>& part,
                                          unsigned to, int warp, int lane) {
#pragma unroll 1
  for (int t = 0; t < config.conv.t; ++t)
    load_frame<config>(x, part, t, to + t * config.frame_bytes(), warp, lane);
}

// A lane's weights of 8 filters at a column.
template <DirectGroupedHalf config>
using Column = unsigned[config.pairs()][2];

// Locates the weights of a warp's eights.
template <DirectGroupedHalf config>
struct WarpWeights {
  unsigned shared;
  Column<config> kept[config.kept() ? config.eights : 1][config.kept() ? config.conv.s : 1];

  __device__ __forceinline__ void load(const float* packed, int first_eight, int lane) {
    if constexpr (config.kept()) {
      const auto* from =
          reinterpret_cast<const uint2*>(packed) + first_eight * (config.eight_words() / 2) + lane;
#pragma unroll
      for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
        for (int s = 0; s < config.conv.s; ++s)
#pragma unroll
          for (int pair = 0; pair < config.pairs(); ++pair, from += 32) {
            const uint2 words = *from;
            kept[eight][s][pair][0] = words.x, kept[eight][s][pair][1] = words.y;
          }
    }
  }
  __device__ __forceinline__ void get(Column<config>& to, int eight, int piece, int s) const {
#pragma unroll
    for (int pair = 0; pair < config.pairs(); ++pair) {
      if constexpr (config.kept())
        to[pair][0] = kept[eight][s][pair][0], to[pair][1] = kept[eight][s][pair][1];
      else
        ptx::ld_shared_v2(to[pair][0], to[pair][1],
                          shared + 4 * (eight * config.eight_words() + piece * config.piece_words() +
                                        (s * config.pairs() + pair) * 64));
    }
  }
};

}  // namespace convtune::direct_grouped_half
