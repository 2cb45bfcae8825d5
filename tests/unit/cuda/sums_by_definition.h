// Sums of a convolution by its definition, on numbers that are made of places in tensors: what a kernel's
// geometry must give, wherever it lays them.
#pragma once

#include "cuda/tile/conv_extents.h"

namespace convtune {

inline int number(long long i) {
  return static_cast<int>(i * 7 % 11) - 5;
}

// The output of a filter at a row and a column of the first image, of number(place) for x and number(place +
// 3) for weights.
inline long long sum_by_definition(const ConvExtents& of, int p, int q, int filter) {
  long long sum = 0;
  const int first = filter / of.group_filters() * of.group_channels();
  for (int c = 0; c < of.group_channels(); ++c)
    for (int r = 0; r < of.r; ++r)
      for (int s = 0; s < of.s; ++s) {
        const int h = p * of.stride_h + r * of.dilation_h - of.pad_top;
        const int w = q * of.stride_w + s * of.dilation_w - of.pad_left;
        if (h < 0 || h >= of.h || w < 0 || w >= of.w) continue;
        const long long weight = ((1LL * filter * of.group_channels() + c) * of.r + r) * of.s + s;
        sum += 1LL * number(of.input_offset(0, first + c, h, w)) * number(weight + 3);
      }
  return sum;
}

}  // namespace convtune
