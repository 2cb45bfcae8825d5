// Describes, for direct_body_half_sm90.cuh, how an axis of the filter meets the image.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"

namespace convtune {

// An axis: an input index is phase + stride * index of a phase, so that
// what a tap reads of a tile are indices of one phase in a row, whatever the stride.
struct BodyAxis {
  int input, output, filter, stride, dilation, pad;
  bool begins_late = false;  // some tiles' first output is not the axis' first
  static constexpr int floor_div(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
  constexpr int at(int tap) const { return tap * dilation - pad; }
  constexpr int offset(int tap) const { return floor_div(at(tap), stride); }  // in indices of its phase
  constexpr int phase(int tap) const { return at(tap) - stride * offset(tap); }
  constexpr int period() const { return stride / gcd(stride, dilation); }  // taps so far apart share a phase
  constexpr int phases() const { return lesser(filter, period()); }
  constexpr int least_taps() const { return ceil_div(filter - phases() + 1, period()); }  // per phase
  // Indices before a tile's first and behind its last output that some tap reads.
  constexpr int before() const { return -offset(0); }  // below 0: the first are not read
  constexpr int behind() const { return offset(filter - 1); }
  constexpr int halo() const { return before() + behind(); }
  // Among whole rows (or images) that stand one after the other, the halo of one can be that of the next: all
  // that is outside of the image is zero, on both sides.
  constexpr int shared() const {
    const int most = greater(before(), behind());
    return !begins_late && before() >= 0 && behind() >= 0 && stride * (output + most - before()) >= input
               ? most
               : halo();
  }
};

// Positions that a residue of uneven ones leaves out before its first output, where positions are too few for
// residues to begin together (Cut::late in problem/forward_parts.h).
constexpr int late_by(int positions, int extent, int stride, int crop, int first) {
  if (crop <= 0 || positions >= (extent - 1 + crop) / stride + 1) return 0;
  return ceil_div(greater(crop - first, 0), stride);
}
constexpr int late_rows_of(const ConvExtents& a, int residue) {
  const ConvLies& lies = a.lies;
  if (!lies.uneven()) return 0;
  return late_by(a.p, lies.h, lies.stride_h, lies.crop_h,
                 residue / lies.residues_w % lies.residues_h * lies.step_h);
}
constexpr int late_columns_of(const ConvExtents& a, int residue) {
  const ConvLies& lies = a.lies;
  if (!lies.uneven()) return 0;
  return late_by(a.q, lies.w, lies.stride_w, lies.crop_w, residue % lies.residues_w * lies.step_w);
}

// Frames of the filter, from one on.
struct BodyFrames {
  int first, end;
  constexpr bool has(int t) const { return first <= t && t < end; }
  constexpr int count() const { return end - first; }
};

// Taps in the plane, from the first row and column on.
struct BodyTaps {
  int row, column;
  constexpr bool has(int some_row, int some_column) const { return some_row >= row && some_column >= column; }
};

// A tile's first output, its volume, group and first filter, which is one of the set's.
struct BodyCorner {
  int image, row, column, volume, group, filter;
  int set;                                               // the group, or a residue of all channels
  constexpr int part() const { return volume + group; }  // coordinate of the extent that both share
};

// Places in shared memory, in bytes.
struct BodySmem {
  int inputs, weights, slices, staging, full, empty, weights_full, weights_empty, residual_full;
  int slices_full, slices_empty;
  long long end;
};

}  // namespace convtune
