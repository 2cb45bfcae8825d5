// How weight_gradient_sm80.cuh fills a stage: a tile of dy and what its pixels meet of x, 16 bytes at a time;
// zeros where there is no pixel, no filter and no channel.
#pragma once

#include "cuda/algorithms/weight_gradient_sm80/config.h"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::weight_gradient_sm80 {

// Describes a block's share of the problem: chunks beside each other, so that one finds in L2 what another
// has read.
template <WeightGradientSm80 config>
struct Part {
  int chunk, rank;

  __device__ explicit Part(unsigned block)
      : chunk(static_cast<int>(block % config.chunks())), rank(static_cast<int>(block / config.chunks())) {}
  __device__ int first_filter() const { return config.first_filter(chunk / config.octet_chunks()); }
  __device__ int end_filter() const { return config.end_filter(chunk / config.octet_chunks()); }
  __device__ int first_channel() const {
    return config.first_channel(chunk / config.octet_chunks(), chunk % config.octet_chunks());
  }
};

template <WeightGradientSm80 config>
struct Loader {
  static constexpr ConvExtents a = config.conv;
  const unsigned short *x, *dy;
  Part<config> part;

  // Commits nothing.
  __device__ __forceinline__ void load(int tile, unsigned stage) const {
    const int side = tile % config.sides(), rest = tile / config.sides();
    const int p = rest % config.bands() * config.rows, q = side * config.columns;
    const int image = rest / config.bands();
    const int row = p * a.stride_h - a.pad_top, column = q * a.stride_w - a.pad_left;
    if constexpr (config.first_layer())
      load_units(image, row, column, stage);
    else
      load_channels(x + static_cast<long long>(image) * (a.h * a.w * a.c), row, column, stage);
    load_gradients(dy + static_cast<long long>(image) * (a.p * a.q * a.k), p, q,
                   stage + config.input_bytes());
  }

 private:
  __device__ __forceinline__ void load_gradients(const unsigned short* from, int p, int q,
                                                 unsigned to) const {
    constexpr int kPieces = config.filters / 8, kAll = config.rows * config.columns * kPieces;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kAll; i += config.threads()) {
      const int piece = i % kPieces, pixel = i / kPieces;
      const int row = p + pixel / config.columns, column = q + pixel % config.columns;
      const int filter = part.first_filter() + 8 * piece;
      const bool inside = row < a.p && column < a.q && filter < part.end_filter();
      copy(to + pixel * config.pixel_bytes() + 16 * piece,
           from + (inside ? (row * a.q + column) * a.k + filter : 0), inside);
    }
  }
  __device__ __forceinline__ void load_channels(const unsigned short* from, int first_row, int first_column,
                                                unsigned to) const {
    constexpr int kPieces = config.block_octets(), kUnits = config.units();
    constexpr int kAll = config.input_rows() * kUnits * kPieces;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kAll; i += config.threads()) {
      const int piece = i % kPieces, unit = i / kPieces % kUnits, of_tile = i / kPieces / kUnits;
      const int row = first_row + of_tile, column = first_column + unit;
      const int channel = part.first_channel() + 8 * piece;
      const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(a.h) &&
                          static_cast<unsigned>(column) < static_cast<unsigned>(a.w) && channel < a.c;
      copy(to + of_tile * config.row_bytes() + config.unit_at(unit) * config.unit_bytes() + 16 * piece,
           from + (inside ? (row * a.w + column) * a.c + channel : 0), inside);
    }
  }
  // Pixels of few channels, one or two a unit, whose other channels are zeros.
  __device__ __forceinline__ void load_units(int image, int first_row, int first_column, unsigned to) const {
    constexpr int kUnits = config.units(), kAll = config.input_rows() * kUnits;
    const int first_frame = image % a.z * a.stride_d - a.pad_front;
    const unsigned short* const of_image = x + static_cast<long long>(image / a.z) * a.d * (a.h * a.w * a.c);
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < kAll; i += config.threads()) {
      const int unit = i % kUnits, of_tile = i / kUnits;
      const int row = first_row + of_tile;
      unsigned words[4] = {0, 0, 0, 0};
      for_constants<0, config.unit_pixels()>([&](auto pixel) {
        constexpr int kPixel = pixel.value;
        const int column = first_column + unit * config.unit_pixels() + kPixel;
        const bool in_plane = static_cast<unsigned>(row) < static_cast<unsigned>(a.h) &&
                              static_cast<unsigned>(column) < static_cast<unsigned>(a.w);
        for_constants<0, a.t>([&](auto tap) {
          constexpr int kOfFrame = 4 * kPixel + tap.value;
          const int frame = first_frame + tap.value * a.dilation_d;
          const bool inside =
              in_plane && (!a.has_depth() || static_cast<unsigned>(frame) < static_cast<unsigned>(a.d));
          const unsigned short* at = of_image + (inside ? (row * a.w + column) * a.c : 0);
          if constexpr (a.has_depth()) at += inside ? static_cast<long long>(frame) * (a.h * a.w * a.c) : 0;
          if constexpr (config.aligned && a.c == 4 && !a.has_depth()) {
            unsigned two[2];
            ptx::ld_global_v2_if(two, at, inside);
            words[2 * kPixel] = two[0], words[2 * kPixel + 1] = two[1];
          } else {
            for_constants<0, a.c>([&](auto channel) {
              constexpr int kPlace = channel.value * a.t + kOfFrame;
              unsigned half;
              ptx::ld_global_u16_if<2 * channel.value>(half, at, inside);
              words[kPlace / 2] |= half << (kPlace % 2 * 16);
            });
          }
        });
      });
      ptx::st_shared_v4(to + of_tile * config.row_bytes() + config.unit_at(unit) * config.unit_bytes(),
                        words);
    }
  }

  __device__ __forceinline__ void copy(unsigned to, const unsigned short* from, bool inside) const {
    if constexpr (config.aligned) {
      ptx::cp_async_16(to, from, inside ? 16 : 0);
    } else {
      unsigned words[4] = {0, 0, 0, 0};
      if (inside)
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = from[2 * i] | static_cast<unsigned>(from[2 * i + 1]) << 16;
      ptx::st_shared_v4(to, words);
    }
  }
};

}  // namespace convtune::weight_gradient_sm80
