// The boxes in which direct_body_half_nchw_sm90.cuh brings an x whose pixels come first, before it transposes
// them: 8 channels of all pixels of a stage, which lie as [line][channel][column].
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"

namespace convtune {

struct BodySlices {
  int lines;  // rows of pixels of a stage, of one image after the other
  int pitch;  // pixels of a line
  int shift;  // columns of a box before these: TMA's boxes begin at multiples of 16 bytes

  static constexpr int kChannels = 8, kPixels = 8;  // extents of a matrix, 8x8 halves
  static constexpr int kPlaces = 4;                 // slices that are on their way, or are read
  static constexpr int kMostColumns = 256;
  constexpr int blocks() const {
    return ceil_div(shift + pitch, kPixels);
  }  // matrices of a line that have a pixel
  // An odd number of blocks, so that the same one of 8 channels meets at no bank.
  constexpr int columns() const {
    const int odd = (blocks() | 1) * kPixels;
    return odd > kMostColumns ? blocks() * kPixels : odd;
  }
  constexpr int channel_bytes() const { return 2 * columns(); }
  constexpr int line_bytes() const { return kChannels * channel_bytes(); }
  constexpr int bytes() const { return lines * line_bytes(); }
  // Returns the column at which a box begins for a tile's first, which is a multiple of 8 or 0.
  constexpr int first_column(int column, int before) const { return column - before - shift; }
  static constexpr int shift_of(int before) { return (kPixels - before % kPixels) % kPixels; }
};

// Tells whether a problem's x in NCHW can come so: rows of pixels are whole pieces of 16 bytes, and channels
// in eights are of one group. Strides along a row would leave most of what a box has unread.
constexpr bool comes_in_slices(const ConvExtents& a, int most_step) {
  return !a.nhwc && !a.lies.between() && a.w % BodySlices::kPixels == 0 && a.stride_w == 1 &&
         a.stride_h <= most_step && a.stride_d <= most_step &&
         a.group_channels() % BodySlices::kChannels == 0 &&
         (a.groups == 1 || (!a.has_depth() && a.group_channels() % 16 == 0));
}

}  // namespace convtune
