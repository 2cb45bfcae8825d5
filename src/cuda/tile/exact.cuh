// One output in plain fp32, without padding and without rounding: what a kernel falls back to where a number
// is not finite, since tensor cores multiply padding and rounding makes an infinity of large numbers.
#pragma once

#include "cuda/tile/constants.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/packed.h"

namespace convtune {

// `taps[i]`: the filter as the user has it, [channel of the group][t][r][s], whose first meets that row,
// column and frame of the image. `input(channel, frame, row, column)`: a number inside it. No bias, no
// activation.
template <class Taps, class Input>
__device__ __forceinline__ float exact_sum(const ConvExtents& a, const Taps& taps, int first_row,
                                           int first_column, const Input& input, int first_frame = 0) {
  float sum = 0;
#pragma unroll 1
  for (int tap = 0; tap < a.taps(); ++tap) {
    const int row = first_row + tap / a.s % a.r * a.dilation_h;
    const int column = first_column + tap % a.s * a.dilation_w;
    const int frame = first_frame + tap / (a.r * a.s) % a.t * a.dilation_d;
    if (frame < 0 || frame >= a.d || row < 0 || row >= a.h || column < 0 || column >= a.w) continue;
    sum = fmaf(input(tap / (a.t * a.r * a.s), frame, row, column), taps[tap], sum);
  }
  return sum;
}

// A filter among weights that are prepared as the halves that they are, where no copy is kept for it.
template <auto config>
struct PreparedTaps {
  const float* packed;
  int filter;
  __device__ __forceinline__ float operator[](int tap) const {
    constexpr auto kOrder = sources<config>();
    return load_element<config.conv.x_type>(packed, kOrder.half_of(filter, tap));
  }
};

template <auto config>
__device__ __forceinline__ auto exact_taps(const float* __restrict__ packed, int filter) {
  const long long first = static_cast<long long>(filter) * config.conv.taps();
  if constexpr (config.packed().weights == 0)
    return PreparedTaps<config>{packed, filter};
  else
    return packed + config.packed().exact_at() + first;
}

// The output itself, of a config that is compiled for its problem.
template <auto config>
__device__ float exact_output(const void* __restrict__ x, const float* __restrict__ packed, int image,
                              int filter, int p, int q, float residual = 0, int z = 0) {
  constexpr Packed kAt = config.packed();
  constexpr ConvExtents a = config.conv;
  constexpr bool kUneven = a.lies.uneven();
  const int first_channel = filter / a.group_filters() * a.group_channels();
  const float sum = exact_sum(
      a, exact_taps<config>(packed, filter), p * a.stride_h - a.pad_top, q * a.stride_w - a.pad_left,
      [&](int channel, int frame, int row, int column) {
        if constexpr (kUneven) {  // the weight is 0, and x may be infinite
          const int residue = filter / a.group_results();
          if ((row == p - a.pad_top && a.lies.lacks_row(residue)) ||
              (column == q - a.pad_left && a.lies.lacks_column(residue)))
            return 0.0f;
        }
        return load_element<a.x_type>(x, a.input_offset(image, first_channel + channel, frame, row, column));
      },
      z * a.stride_d - a.pad_front);
  return finish<config.conv>(sum, packed[kAt.bias_at() + filter], residual);
}
// Its place in y, negative where y has none: each way as short as it can be, since all kernels compile it.
template <auto config>
__device__ __forceinline__ long long exact_place(int image, int filter, int p, int q, int z) {
  constexpr ConvExtents a = config.conv;
  if constexpr (a.lies.between())
    return a.stored_offset(image, filter, z, p, q);
  else if constexpr (a.has_depth())
    return a.output_offset(image, filter, z, p, q);
  else
    return a.output_offset(image, filter, p, q);
}
// As exact_output(), with its residual, stored in y.
template <auto config>
__device__ __forceinline__ void store_exact_output(const void* __restrict__ x,
                                                   const float* __restrict__ packed,
                                                   const void* __restrict__ residual, void* __restrict__ y,
                                                   int image, int filter, int p, int q, int z = 0) {
  constexpr ConvExtents a = config.conv;
  const long long at = exact_place<config>(image, filter, p, q, z);
  if (a.lies.between() && at < 0) return;
  const float added = a.residual ? load_element<a.y_type>(residual, at) : 0;
  store_element<a.y_type>(y, at, exact_output<config>(x, packed, image, filter, p, q, added, z));
}

}  // namespace convtune
