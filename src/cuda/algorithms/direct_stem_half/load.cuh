// How direct_stem_half.cuh loads: a tile's input into shared memory, and from there the operands of products.
#pragma once

#include "cuda/algorithms/direct_stem_half/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::direct_stem_half {

// A tile: a frame of all images' outputs, and its first row.
template <DirectStemHalf config>
struct Tile {
  int frame, p;

  __device__ explicit Tile(int tile) {
    constexpr int kBands = config.bands();
    p = tile % kBands * config.rows;
    frame = tile / kBands;
  }
  __device__ int first_row() const { return p * config.conv.stride_h - config.conv.pad_top; }
  __device__ const unsigned short* input(const void* x) const {
    constexpr ConvExtents a = config.conv;
    return static_cast<const unsigned short*>(x) +
           static_cast<long long>(frame / a.z) * (a.c * a.d * a.h * a.w);
  }
  // Maps a tile's plane to the image's: -1, which it has not, for a frame of padding.
  __device__ static bool has_plane(int plane) { return !config.conv.has_depth() || plane >= 0; }
  __device__ int input_plane(int plane) const {
    constexpr ConvExtents a = config.conv;
    if constexpr (!a.has_depth()) return plane;
    const int in_image = frame % a.z * a.stride_d - a.pad_front + plane % a.t * a.dilation_d;
    return in_image >= 0 && in_image < a.d ? plane / a.t * a.d + in_image : -1;
  }
};

// By all threads; the copies are committed by the caller.
template <DirectStemHalf config>
__device__ void load_tile(const void* __restrict__ x, const Tile<config>& tile, unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr int kCopy = config.copy_halves(), kRowCopies = config.pitch() / kCopy;
  constexpr int kRowHalves = config.row_halves(), kTileRows = config.tile_rows();
  constexpr int kCopies = config.planes() * kTileRows * kRowCopies;
  const unsigned short* const image = tile.input(x);
#pragma unroll 4
  for (int i = threadIdx.x; i < kCopies; i += config.threads()) {
    const int at = i % kRowCopies * kCopy, line = i / kRowCopies;
    const int row = tile.first_row() + line % kTileRows, half = at - config.lead();
    const int plane = tile.input_plane(line / kTileRows);
    const bool inside = tile.has_plane(plane) && row >= 0 && row < a.h && half >= 0 && half < kRowHalves;
    const unsigned short* const from = inside ? image + (plane * a.h + row) * kRowHalves + half : image;
    const unsigned into = to + 2 * (line * config.pitch() + at);
    if constexpr (kCopy == 8)
      ptx::cp_async_16(into, from, inside ? 16 : 0);
    else if constexpr (kCopy == 4)
      ptx::cp_async_8(into, from, inside ? 8 : 0);
    else if constexpr (kCopy == 2)
      ptx::cp_async_4(into, from, inside ? 4 : 0);
    else
      ptx::st_shared_u16(into, inside ? *from : 0);
  }
}

// Describes the part of a pair that lane `thread` of its four holds: its offset in bytes from the window
// of its output, less the 4 * thread that is part of the window's address, and which of its halves count.
struct FourPairs {
  int offset[4];
  unsigned mask[4];

  constexpr FourPairs(const DirectStemHalf::Window& window, int first) : offset{}, mask{} {
    for (int thread = 0; thread < 4; ++thread) {
      const int pair = first + thread;
      offset[thread] = (pair < window.pairs ? 2 * window.offset(pair) : 0) - 4 * thread;
      mask[thread] = window.mask(pair);
    }
  }
  constexpr bool plain() const {
    return offset[1] == offset[0] && offset[2] == offset[0] && offset[3] == offset[0];
  }
  constexpr bool whole() const { return (mask[0] & mask[1] & mask[2] & mask[3]) == 0xffffffffu; }
};

template <class T>
__device__ __forceinline__ T of_thread(int thread, T zero, T one, T two, T three) {
  const T low = thread == 0 ? zero : one, high = thread == 2 ? two : three;
  return thread < 2 ? low : high;
}

template <DirectStemHalf config>
__device__ __forceinline__ unsigned load_pair(unsigned from) {
  if constexpr (config.whole_pairs()) return ptx::ld_shared(from);
  return ptx::ld_shared_u16(from) | ptx::ld_shared_u16(from + 2) << 16;
}

// A pair of kFirst's four of two windows of this lane, `zero` and `eight`, which have 4 * thread in them.
template <DirectStemHalf config, int kFirst>
__device__ __forceinline__ void load_pairs(unsigned& one, unsigned& other, unsigned zero, unsigned eight,
                                           int thread) {
  constexpr FourPairs kFour(constant<config.window()>, kFirst);
  int offset = kFour.offset[0];
  if constexpr (!kFour.plain())
    offset = of_thread(thread, kFour.offset[0], kFour.offset[1], kFour.offset[2], kFour.offset[3]);
  one = load_pair<config>(zero + offset), other = load_pair<config>(eight + offset);
  if constexpr (!kFour.whole()) {
    const unsigned mask = of_thread(thread, kFour.mask[0], kFour.mask[1], kFour.mask[2], kFour.mask[3]);
    one &= mask, other &= mask;
  }
}

// The operand of step kStep.
template <DirectStemHalf config, int kStep>
__device__ __forceinline__ void load_operand(unsigned (&a)[4], unsigned zero, unsigned eight, int thread) {
  load_pairs<config, 8 * kStep>(a[0], a[1], zero, eight, thread);
  load_pairs<config, 8 * kStep + 4>(a[2], a[3], zero, eight, thread);
}

}  // namespace convtune::direct_stem_half
