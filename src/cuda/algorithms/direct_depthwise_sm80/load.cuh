// How direct_depthwise_sm80.cuh loads: rows of a tile's input into the ring; and how a thread has its
// numbers.
#pragma once

#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_depthwise_sm80 {

// Describes a block's share of the problem.
template <DirectDepthwiseSm80 config>
struct Part {
  int chunk, side, band, image;

  __device__ explicit Part(unsigned block) {
    chunk = static_cast<int>(block % config.chunks());
    block /= config.chunks();
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    band = static_cast<int>(block % config.bands());
    image = static_cast<int>(block / config.bands());
  }
  __device__ int first_channel() const { return chunk * config.channels; }
};

template <ElementType kType>
struct Stored {
  using Type = unsigned short;
};
template <>
struct Stored<ElementType::f32> {
  using Type = float;
};
template <DirectDepthwiseSm80 config>
using Element = typename Stored<config.conv.x_type>::Type;

// Two halves, read one by one; the second where it is there.
__device__ __forceinline__ unsigned halves_at(const unsigned short* __restrict__ from, bool second) {
  return from[0] | (second ? static_cast<unsigned>(from[1]) << 16 : 0);
}

// Rows [begin, end) of a tile's input into the ring, four words at a time where it can be.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void load_rows(const Element<config>* __restrict__ x, float* ring,
                                          const Part<config>& part, int begin, int end) {
  constexpr ConvExtents a = config.conv;
  constexpr int kWidth = config.vectors() && config.aligned ? 4 : 1;
  constexpr int kAcross = config.words_abreast() / kWidth, kColumns = config.input_columns();
  // Threads that load, each always the same channels of a position; 0: they would be more than there are.
  constexpr int kLoaders = kWidth == 4 ? config.threads() / kAcross * kAcross : 0;
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const Element<config>* image =
      x + static_cast<long long>(part.image) * a.h * a.w * a.c + part.first_channel();
  const unsigned to = ptx::shared_address(ring);
  const int all = end * kColumns;  // positions
  const auto load = [&](int position, int word) {
    const int channel = word * config.word();
    const int tile_row = position / kColumns, tile_column = position % kColumns;
    const int row = top + tile_row, column = left + tile_column;
    const bool inside = (config.all_rows() || (row >= 0 && row < a.h)) &&
                        (config.all_columns() || (column >= 0 && column < a.w)) &&
                        (a.c % config.channels == 0 || part.first_channel() + channel < a.c);
    const Element<config>* from = image + (inside ? (row * a.w + column) * a.c + channel : 0);
    const int there =
        (tile_row % config.ring_rows() * kColumns + tile_column) * config.words_abreast() + word;
    if constexpr (!config.words())
      ptx::st_shared(to + there * 4, inside ? halves_at(from, part.first_channel() + channel + 1 < a.c) : 0u);
    else if constexpr (kWidth == 4)
      ptx::cp_async_16(to + there * 4, from, inside ? 16 : 0);
    else
      ptx::cp_async_4(to + there * 4, from, inside ? 4 : 0);
  };
  if constexpr (kLoaders > 0) {
    if (kLoaders < config.threads() && threadIdx.x >= kLoaders) return;
    const int word = static_cast<int>(threadIdx.x) % kAcross * kWidth;
#pragma unroll 4
    for (int position = begin * kColumns + static_cast<int>(threadIdx.x) / kAcross; position < all;
         position += kLoaders / kAcross)
      load(position, word);
  } else {
#pragma unroll 1
    for (int i = begin * kColumns * kAcross + static_cast<int>(threadIdx.x); i < all * kAcross;
         i += config.threads())
      load(i / kAcross, i % kAcross * kWidth);
  }
}

template <DirectDepthwiseSm80 config>
using Channels = float[config.width];
template <DirectDepthwiseSm80 config>
using Sums = Channels<config>[config.rows][config.columns];

// From a word, or from a half.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void widen(Channels<config>& channels, unsigned bits) {
  if constexpr (config.word() == 1)
    channels[0] = __uint_as_float(bits);
  else
    channels[0] = low_half<config.conv.x_type>(bits);
  if constexpr (config.width == 2) channels[1] = high_half<config.conv.x_type>(bits);
}

}  // namespace convtune::direct_depthwise_sm80
