// How direct_few_half.cuh loads: some channels of a tile's pixels, and the weights that they meet.
#pragma once

#include "cuda/algorithms/direct_few_half/config.h"
#include "cuda/ptx/sm80.cuh"

namespace convtune::direct_few_half {

// Describes a block's tile.
template <DirectFewHalf config>
struct Part {
  int side, band, frame;  // frame: of all images

  __device__ explicit Part(unsigned block) {
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    band = static_cast<int>(block % config.bands());
    frame = static_cast<int>(block / config.bands());
  }
  __device__ int p() const { return band * config.tile_rows(); }
  __device__ int q() const { return side * config.tile_columns(); }
};

// Eight channels of a pixel, or zeros, where a whole piece cannot be copied.
template <DirectFewHalf config>
__device__ __forceinline__ void load_singly(unsigned to, const unsigned short* __restrict__ pixel, bool here,
                                            int channel) {
  unsigned words[4] = {};
#pragma unroll
  for (int half = 0; half < 8; ++half)
    if (here && channel + half < config.conv.c)
      words[half / 2] |= static_cast<unsigned>(pixel[half]) << (half % 2 * 16);
  ptx::st_shared_v4(to, words);
}

// The pixels of a turn: a thread has a piece of a column, in rows below each other, all of them or, where
// pieces are fewer than threads, every kGroups-th.
template <DirectFewHalf config>
__device__ __forceinline__ void load_pixels(const unsigned short* __restrict__ x, const Part<config>& part,
                                            int turn, unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = config.pieces(), kLine = config.input_columns() * kPieces;
  constexpr int kThreads = config.threads(), kGroups = greater(kThreads / kLine, 1);
  constexpr int kRows = config.input_rows(), kTurns = ceil_div(kRows, kGroups);
  const int in_image = part.frame % a.z * a.stride_d - a.pad_front + turn / config.chunks() * a.dilation_d;
  const bool exists = !a.has_depth() || (in_image >= 0 && in_image < a.d);
  const int frame = a.has_depth() ? part.frame / a.z * a.d + in_image : part.frame;
  const unsigned short* const image = x + static_cast<long long>(frame) * (a.h * a.w * a.c);
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const int thread = static_cast<int>(threadIdx.x), group = kGroups > 1 ? thread / kLine : 0;
  if (group >= kGroups) return;
#pragma unroll 1
  for (int i = thread - group * kLine; i<kLine; i += kGroups> 1 ? kLine : kThreads) {
    const int piece = i % kPieces, tile_column = i / kPieces, column = left + tile_column;
    const int channel = turn % config.chunks() * config.channels + 8 * piece;
    const bool inside = exists && column >= 0 && column < a.w && channel < a.c;
    const unsigned short* const from = image + ((top + group) * a.w + column) * a.c + channel;
    const unsigned there = to + config.piece_offset(tile_column, piece) + group * config.row_bytes();
#pragma unroll(kTurns <= 16 ? kTurns : 8)
    for (int below = 0; below < kTurns; ++below) {
      const int row = group + below * kGroups;
      const bool wanted = (kRows % kGroups == 0 && kTurns <= 16) || row < kRows;
      const bool here = inside && wanted && static_cast<unsigned>(top + row) < static_cast<unsigned>(a.h);
      const unsigned short* const pixel = here ? from + below * (kGroups * a.w * a.c) : x;
      const unsigned into = there + below * (kGroups * config.row_bytes());
      if constexpr (config.aligned && a.c % 8 == 0)
        ptx::cp_async_16_if(into, pixel, here ? 16 : 0, wanted);
      else if (wanted)
        load_singly<config>(into, pixel, here, channel);
    }
  }
}

// A turn on its way, a group of copies.
template <DirectFewHalf config>
__device__ __forceinline__ void load_turn(const unsigned short* __restrict__ x,
                                          const float* __restrict__ packed, const Part<config>& part,
                                          int turn, unsigned to) {
  constexpr int kBytes = config.weight_bytes();
  const auto* const from =
      reinterpret_cast<const unsigned char*>(packed) + static_cast<long long>(turn) * kBytes;
  for (int i = static_cast<int>(threadIdx.x) * 16; i < kBytes; i += config.threads() * 16)
    ptx::cp_async_16(to + config.input_bytes() + i, from + i, 16);
  load_pixels<config>(x, part, turn, to);
}

}  // namespace convtune::direct_few_half
