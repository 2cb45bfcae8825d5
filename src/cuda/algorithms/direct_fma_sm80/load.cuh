// Finds, for direct_fma_sm80.cuh, which part of the problem a block has, and how its input and weights come
// into shared memory.
#pragma once

#include "cuda/algorithms/direct_fma_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::direct_fma_sm80 {

inline constexpr int kAtOnce = 4;  // copies in straight code

// Describes a block's share of the problem.
template <DirectFmaSm80 config>
struct Part {
  static constexpr ConvExtents a = config.conv;
  int filter_block, piece;  // piece: a side of a band
  long long first_unit;

  __device__ explicit Part(unsigned block) {
    filter_block = static_cast<int>(block % config.filter_blocks());
    block /= config.filter_blocks();
    piece = static_cast<int>(block % (config.bands() * config.sides()));
    first_unit = static_cast<long long>(block / (config.bands() * config.sides())) * config.units;
  }
  // The last block may have less.
  __device__ bool has_unit(int unit) const {
    return config.all_units() % config.units == 0 || first_unit + unit < config.all_units();
  }
  __device__ int band() const { return piece / config.sides(); }
  __device__ int first_row() const { return band() * config.band_rows(); }
  __device__ int group(int unit) const {
    return static_cast<int>((first_unit + unit) % static_cast<long long>(a.groups));
  }
  __device__ bool has_filter(int filter /* for the block */) const {
    return a.group_filters() % config.block_filters() == 0 ||
           filter_block * config.block_filters() + filter < a.group_filters();
  }
  __device__ bool has_row(int row /* for the band */) const {
    return a.p % config.band_rows() == 0 || first_row() + row < a.p;
  }
  __device__ int first_column() const { return piece % config.sides() * config.block_columns(); }
  __device__ bool has_column(int column /* for the side */) const {
    return (config.sides() == 1 && a.q % DirectFmaSm80::kColumns == 0) || first_column() + column < a.q;
  }
  // The image's column that is the first in shared memory.
  __device__ int first_loaded() const {
    return config.sides() == 1 ? 0 : first_column() * a.stride_w - config.margin();
  }
  __device__ bool loads_column(int column) const {
    return config.sides() == 1 || (column >= 0 && column < a.w);
  }
  // From y's start to a plane of the output.
  __device__ long long plane(int unit, int filter) const {
    return ((first_unit + unit) * a.group_filters() + filter_block * config.block_filters() + filter) *
           (static_cast<long long>(a.p) * a.q);
  }
};

// Input rows into shared memory, a vector of columns at a time where it can be; what lies outside the image
// is zeros. A thread keeps its column where there are threads enough for a row.
template <DirectFmaSm80 config>
__device__ __forceinline__ void load_floats(const float* __restrict__ x, float* input,
                                            const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kWidth = config.vectors() && config.aligned ? 4 : 1;
  constexpr int kAcross = config.loaded_columns() / kWidth;
  constexpr int kRows = config.planes() * config.input_rows();
  constexpr int kStep = config.threads() / (kAcross > 0 ? kAcross : 1);
  constexpr bool kInts = static_cast<long long>(config.planes()) * a.h * a.w < (1LL << 31);
  const int top = part.first_row() * a.stride_h - a.pad_top;
  const float* planes = x + part.first_unit * a.group_channels() * (static_cast<long long>(a.h) * a.w);
  const unsigned to = ptx::shared_address(input) + config.loaded_from() * 4;
  const auto load = [&](int row, int in_row) {
    const int column = part.first_loaded() + in_row;
    const int plane = config.planes() == 1 ? 0 : row / config.input_rows();
    const int image_row = top + row - plane * config.input_rows();
    const bool inside = image_row >= 0 && image_row < a.h && part.has_unit(plane / a.group_channels()) &&
                        part.loads_column(column);
    const long long from = kInts ? (plane * a.h + image_row) * a.w + column
                                 : (static_cast<long long>(plane) * a.h + image_row) * a.w + column;
    const unsigned there = to + (row * config.pitch() + in_row) * 4;
    if constexpr (kWidth == 4)
      ptx::cp_async_16_if(there, planes + (inside ? from : 0), inside ? 16 : 0, row < kRows);
    else
      ptx::cp_async_4_if(there, planes + (inside ? from : 0), inside ? 4 : 0, row < kRows);
  };
  if constexpr (kStep > 0 && kAcross > 0) {
    const int column = static_cast<int>(threadIdx.x) % kAcross * kWidth;
    if (threadIdx.x < kStep * kAcross)
#pragma unroll 1
      for (int row = static_cast<int>(threadIdx.x) / kAcross; row < kRows; row += kStep * kAtOnce)
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) load(row + i * kStep, column);
  } else if constexpr (kAcross > 0) {
#pragma unroll 1
    for (int i = threadIdx.x; i < kRows * kAcross; i += config.threads() * kAtOnce)
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        load((i + j * config.threads()) / kAcross, (i + j * config.threads()) % kAcross * kWidth);
  }
}

// Reads kWidth halves from an address that is a multiple of their bytes, two a word.
template <int kWidth>
__device__ __forceinline__ void read_halves(unsigned (&words)[ceil_div(kWidth, 2)],
                                            const unsigned short* __restrict__ from) {
  if constexpr (kWidth == 8) {
    ptx::ld_global_v4_uncached(words, from);
  } else if constexpr (kWidth == 4) {
    const uint2 four = *reinterpret_cast<const uint2*>(from);
    words[0] = four.x, words[1] = four.y;
  } else {
    words[0] = *from;
  }
}

// Input rows of half precision as floats: read into registers, several pieces at once, since asynchronous
// copies cannot widen.
template <DirectFmaSm80 config>
__device__ __forceinline__ void load_halves(const unsigned short* __restrict__ x, float* input,
                                            const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kWidth = config.copied_halves(), kWords = ceil_div(kWidth, 2);
  constexpr int kAcross = config.loaded_columns() / kWidth;
  constexpr int kPieces = config.planes() * config.input_rows() * kAcross;
  const int top = part.first_row() * a.stride_h - a.pad_top;
  const unsigned short* planes =
      x + part.first_unit * a.group_channels() * (static_cast<long long>(a.h) * a.w);
  if constexpr (kPieces > 0)
#pragma unroll 1
    for (int first = threadIdx.x; first < kPieces; first += config.threads() * kAtOnce) {
      unsigned words[kAtOnce][kWords] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * config.threads(), row = piece / kAcross;
        const int plane = row / config.input_rows(), image_row = top + row % config.input_rows();
        const int column = part.first_loaded() + piece % kAcross * kWidth;
        if (piece < kPieces && image_row >= 0 && image_row < a.h &&
            part.has_unit(plane / a.group_channels()) && part.loads_column(column))
          read_halves<kWidth>(words[i],
                              planes + (static_cast<long long>(plane) * a.h + image_row) * a.w + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * config.threads();
        if (piece >= kPieces) break;
        float* to =
            input + config.loaded_from() + piece / kAcross * config.pitch() + piece % kAcross * kWidth;
        if constexpr (kWidth == 1) {
          *to = low_half<a.x_type>(words[i][0]);
        } else {
#pragma unroll
          for (int word = 0; word < kWords; word += 2)
            *reinterpret_cast<float4*>(to + 2 * word) =
                make_float4(low_half<a.x_type>(words[i][word]), high_half<a.x_type>(words[i][word]),
                            low_half<a.x_type>(words[i][word + 1]), high_half<a.x_type>(words[i][word + 1]));
        }
      }
    }
}

template <DirectFmaSm80 config>
__device__ __forceinline__ void load_input(const void* __restrict__ x, float* input,
                                           const Part<config>& part) {
  if constexpr (config.halves())
    load_halves<config>(static_cast<const unsigned short*>(x), input, part);
  else
    load_floats<config>(static_cast<const float*>(x), input, part);
}

// The columns to the left and right of the image.
template <DirectFmaSm80 config>
__device__ __forceinline__ void clear_margins(float* input) {
  constexpr int kWidth = config.vectors() ? 4 : 1;  // all of their extents are multiples of it
  constexpr int kMargins = config.sides() == 1 ? (config.pitch() - config.stored_columns()) / kWidth : 0;
  if constexpr (kMargins > 0)
#pragma unroll 4
    for (int i = threadIdx.x; i < config.planes() * config.input_rows() * kMargins; i += config.threads()) {
      const int column = i % kMargins * kWidth;
      float* to = input + i / kMargins * config.pitch() + column +
                  (column < config.margin() ? 0 : config.stored_columns());
      if constexpr (kWidth == 4)
        *reinterpret_cast<float4*>(to) = make_float4(0, 0, 0, 0);
      else
        *to = 0;
    }
}

template <DirectFmaSm80 config>
__device__ __forceinline__ void load_weights(const float* __restrict__ packed, float* weights,
                                             const Part<config>& part) {
  constexpr int kVectors = config.block_weight_floats() / 4;
  const unsigned to = ptx::shared_address(weights);
#pragma unroll 1
  for (int i = threadIdx.x; i < config.weight_units() * kVectors; i += config.threads()) {
    const int unit = i / kVectors;
    const long long from =
        (static_cast<long long>(part.group(unit)) * config.filter_blocks() + part.filter_block) * kVectors +
        i % kVectors;
    ptx::cp_async_16(to + i * 16, packed + from * 4, 16);
  }
}

}  // namespace convtune::direct_fma_sm80
