// How slices of planes are transposed (load.cuh): lines of a few columns of a channel, which a lane reads 16
// bytes at a time.
#pragma once

#include "cuda/algorithms/weight_gradient_tf32_sm90/words.cuh"

namespace convtune::weight_gradient_tf32_sm90 {

// Words of a channel of a slice of planes, all of a line, whose 16-byte pieces are exchanged as TMA does it.
template <int kCount>
__device__ __forceinline__ void read_line(unsigned (&words)[kCount], unsigned slice, int line) {
  static_assert(kCount == 16 || kCount == 8);
  const int exchange = kCount == 16 ? line / 2 % 4 : line / 4 % 2;
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    unsigned four[4];
    ptx::ld_shared_v4(four, slice + 4 * kCount * line + 16 * (i ^ exchange));
#pragma unroll
    for (int j = 0; j < 4; ++j) words[4 * i + j] = four[j];
  }
}

// As transpose_gradients(), of 64 filters of planes, from kFirst on: rows in place of fours.
template <WeightGradientTf32Sm90 config, int kFirst>
__device__ __forceinline__ void transpose_gradient_planes(const Words<config>& words, unsigned slice,
                                                          unsigned to, int warp, BiasSums<config>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned some[2][2][8];
  for_fours<config>(
      warp, config.rows,
      [&](int row, auto place) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if constexpr (config.aligned)
            read_line(some[place.value][j], slice, (32 * j + lane) * config.rows + row);
          else
#pragma unroll
            for (int i = 0; i < 8; ++i)
              some[place.value][j][i] = words.gradient(0, 0, row, i, kFirst + 32 * j + lane);
      },
      [&](int row, auto place, bool is_new) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          unsigned(&mine)[8] = some[place.value][j];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            if constexpr (config.bias) sums[kFirst / 32 + j] += is_new ? __uint_as_float(mine[i]) : 0;
            mine[i] = rounded_tf32(mine[i]);
          }
#pragma unroll
          for (int four = 0; four < 2; ++four)
            ptx::st_shared_v4(to + (2 * row + four) * config.gradient_four() + 16 * (kFirst + 32 * j + lane),
                              {mine[4 * four], mine[4 * four + 1], mine[4 * four + 2], mine[4 * four + 3]});
        }
      });
}

// As transpose_inputs(), of some channels of planes, from `first` on.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_input_planes(const Words<config>& words, unsigned slice,
                                                       unsigned to, int first, int warp) {
  constexpr ConvExtents a = config.conv;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned at = to + 16 * (first / config.kBlock * a.s * config.kBlock + first % config.kBlock + lane);
  unsigned some[2][16];
  for_fours<config>(
      warp, config.input_rows(),
      [&](int row, auto place) {
        if constexpr (config.aligned)
          read_line(some[place.value], slice, lane * config.input_rows() + row);
        else
#pragma unroll
          for (int i = 0; i < 16; ++i)
            some[place.value][i] = words.input(0, 0, row, i - config.early(), first + lane);
      },
      [&](int row, auto place, bool) {
        unsigned(&mine)[16] = some[place.value];
#pragma unroll
        for (int i = config.early(); i < config.early() + config.input_columns(); ++i)
          mine[i] = rounded_tf32(mine[i]);
        const unsigned there = at + config.place_of_row(row) * 2 * config.input_four();
#pragma unroll
        for (int four = 0; four < 2; ++four)
#pragma unroll
          for (int s = 0; s < a.s; ++s) {
            const unsigned* const begin = mine + config.early() + 4 * four + s * a.dilation_w;
            ptx::st_shared_v4(there + four * config.input_four() + 16 * s * config.kBlock,
                              {begin[0], begin[1], begin[2], begin[3]});
          }
      });
}

// As both, of 64 filters or channels of planes of one row where taps are one: warps share the fours of a
// line. `sums`: of the first and the other 32, where they are wanted.
template <WeightGradientTf32Sm90 config, bool kOfGradient>
__device__ __forceinline__ void transpose_flat_planes(const Words<config>& words, unsigned slice, unsigned to,
                                                      int first, int warp, float* sums) {
  constexpr int kFour = kOfGradient ? config.gradient_four() : config.input_four();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  unsigned some[2][4];
#pragma unroll 1
  for (int four = warp; four < config.row_fours(); four += config.transposing_warps()) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int line = 32 * j + lane;
      if constexpr (config.aligned)
        ptx::ld_shared_v4(some[j], slice + 128 * line + 16 * (four ^ line % 8));
      else
#pragma unroll
        for (int i = 0; i < 4; ++i)
          some[j][i] = kOfGradient ? words.gradient(0, 0, 0, 4 * four + i, first + line)
                                   : words.input(0, 0, 0, 4 * four + i, first + line);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (config.bias && kOfGradient) sums[j] += __uint_as_float(some[j][i]);
        some[j][i] = rounded_tf32(some[j][i]);
      }
      ptx::st_shared_v4(to + four * kFour + 16 * (first + 32 * j + lane), some[j]);
    }
  }
}

}  // namespace convtune::weight_gradient_tf32_sm90
