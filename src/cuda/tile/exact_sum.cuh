// One output element in plain fp32, without padding and without rounding: what a kernel falls back to where a
// number is not finite, since tensor cores multiply padding and rounding makes an infinity of large numbers.
#pragma once

#include "cuda/tile/conv2d_extents.h"

namespace convtune {

// `w` as the user has it: [k][c / groups][r][s]. No bias, no activation.
__device__ inline float exact_sum(const Conv2dExtents& a, const float* __restrict__ x,
                                  const float* __restrict__ w, int image, int filter, int p, int q) {
  const int first_channel = filter / a.group_filters() * a.group_channels();
  const float* taps = w + static_cast<long long>(filter) * a.taps();
  float sum = 0;
#pragma unroll 1
  for (int tap = 0; tap < a.taps(); ++tap) {
    const int row = p * a.stride_h + tap / a.s % a.r * a.dilation_h - a.pad_top;
    const int column = q * a.stride_w + tap % a.s * a.dilation_w - a.pad_left;
    if (row < 0 || row >= a.h || column < 0 || column >= a.w) continue;
    sum = fmaf(x[a.input_offset(image, first_channel + tap / (a.r * a.s), row, column)], taps[tap], sum);
  }
  return sum;
}

}  // namespace convtune
