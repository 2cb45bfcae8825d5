// Sums of a convolution by its definition, on numbers that are made of places in tensors: what a kernel's
// geometry must give, wherever it lays them.
#pragma once

#include "cuda/tile/conv_extents.h"

namespace convtune {

inline int number(long long i) {
  return static_cast<int>(i * 7 % 11) - 5;
}

// The output of a filter at a row and a column of an image's frame, of number(place) for x and number(place +
// 3) for weights.
inline long long sum_by_definition(const ConvExtents& of, int p, int q, int filter, int image = 0,
                                   int z = 0) {
  long long sum = 0;
  const int first = filter / of.group_filters() * of.group_channels();
  for (int c = 0; c < of.group_channels(); ++c)
    for (int t = 0; t < of.t; ++t)
      for (int r = 0; r < of.r; ++r)
        for (int s = 0; s < of.s; ++s) {
          const int d = z * of.stride_d + t * of.dilation_d - of.pad_front;
          const int h = p * of.stride_h + r * of.dilation_h - of.pad_top;
          const int w = q * of.stride_w + s * of.dilation_w - of.pad_left;
          if (d < 0 || d >= of.d || h < 0 || h >= of.h || w < 0 || w >= of.w) continue;
          const long long plane = (1LL * filter * of.group_channels() + c) * of.t + t;
          sum += 1LL * number(of.input_offset(image, first + c, d, h, w)) *
                 number((plane * of.r + r) * of.s + s + 3);
        }
  return sum;
}

}  // namespace convtune
