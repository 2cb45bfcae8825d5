// Words of x and dy on their way to where weight_gradient_tf32_sm90.cuh multiplies them.
#pragma once

#include "cuda/algorithms/weight_gradient_tf32_sm90/config.h"
#include "cuda/ptx/sm90.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::weight_gradient_tf32_sm90 {

// Numbers rounded to TF32; what is not finite stays as it is, and makes sums that are computed again.
__device__ __forceinline__ unsigned rounded_tf32(unsigned bits) {
  if (fabsf(__uint_as_float(bits)) < __uint_as_float(0x7f800000)) bits += 0x1000;
  return bits;
}

// Reads words of x and dy: of a slice, or of tensors that may begin anywhere.
template <WeightGradientTf32Sm90 config>
struct Words {
  static constexpr ConvExtents a = config.conv;
  const float *x, *dy;
  int first_filter, first_channel;
  WeightGradientTf32Sm90::Place at;  // place of the stage

  // A word of a filter, or channel, by the row and column of the stage; `slice`: where its rows begin.
  __device__ __forceinline__ unsigned gradient(unsigned slice, int first_row, int row, int column,
                                               int filter) const {
    if constexpr (config.aligned)
      return ptx::ld_shared(slice + 4 * ((row * config.columns + column) * config.tile_rows() + filter));
    const int p = at.row + first_row + row, q = at.column + column;
    filter += first_filter;
    if constexpr (config.flat_batch()) {
      const long long pixel = 1LL * p * config.columns + q;
      return filter < a.k && pixel < config.all_pixels() ? __float_as_uint(dy[pixel * a.k + filter]) : 0;
    }
    const bool inside = filter < a.k && p < config.height() && q < config.width();
    return inside ? __float_as_uint(dy[a.output_offset(at.image, filter, p, q)]) : 0;
  }
  __device__ __forceinline__ unsigned input(unsigned slice, int first_row, int row, int column,
                                            int channel) const {
    if constexpr (config.aligned)
      return ptx::ld_shared(slice +
                            4 * ((row * config.input_columns() + column) * config.tile_channels() + channel));
    const int h = at.row * a.stride_h - a.pad_top + first_row + row;
    const int w = at.column * a.stride_w - a.pad_left + column;
    channel += first_channel;
    if constexpr (config.flat_batch()) {
      const long long pixel = 1LL * h * config.columns + w;
      return channel < a.c && pixel < config.all_pixels() ? __float_as_uint(x[pixel * a.c + channel]) : 0;
    }
    const bool inside =
        channel < a.c && h >= 0 && h < config.input_height() && w >= 0 && w < config.input_width();
    return inside ? __float_as_uint(x[a.input_offset(at.image, channel, h, w)]) : 0;
  }
};

// Sums of dy of a lane's filters, 32 apart.
template <WeightGradientTf32Sm90 config>
using BiasSums = float[config.bias ? config.tile_rows() / 32 : 1];

// Fours of pixels of a warp, two at a time, the last perhaps twice: loads of both are under way before the
// first is stored. take(four, place) and store(four, place, is_new), of place 0 or 1.
template <WeightGradientTf32Sm90 config, class Take, class Store>
__device__ __forceinline__ void for_fours(int warp, int fours, const Take& take, const Store& store) {
  constexpr int kWarps = config.transposing_warps();
#pragma unroll 1
  for (int four = warp; four < fours; four += 2 * kWarps) {
    const bool two = four + kWarps < fours;
    const int other = two ? four + kWarps : four;
    take(four, Int<0>{});
    take(other, Int<1>{});
    store(four, Int<0>{}, true);
    store(other, Int<1>{}, two);
  }
}

}  // namespace convtune::weight_gradient_tf32_sm90
