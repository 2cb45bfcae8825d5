// The axes of a gathering (problem/forward_parts.h) as its kernel takes them. What lies together in the
// result, the filters of a channel with their taps, is a row; a thread has a unit of one.
#pragma once

namespace convtune {

struct GatherAxes {
  static constexpr int kAxes = 9, kResidues = 1, kChannels = 4, kFilters = 5, kTaps = 6;
  static constexpr int kThreads = 256, kUnit = 8;
  long long begin = 0;
  unsigned extents[kAxes] = {};
  long long steps[kAxes] = {};
  unsigned whole[3] = {};

  constexpr unsigned row() const {
    return extents[kFilters] * extents[kTaps] * extents[kTaps + 1] * extents[kTaps + 2];
  }
  constexpr unsigned row_units() const { return (row() + kUnit - 1) / kUnit; }
  constexpr long long units() const {
    long long units = row_units();
    for (int axis = 0; axis < kFilters; ++axis) units *= extents[axis];
    return units;
  }
  constexpr unsigned blocks() const { return static_cast<unsigned>((units() + kThreads - 1) / kThreads); }
  // Tells whether taps are one axis (axes_of()), and none is lacking.
  constexpr bool has_plain_taps() const {
    return extents[kTaps] * extents[kTaps + 1] == 1 && whole[0] + whole[1] + whole[2] == 0;
  }
  // Place of the result's element i in the tensor, -1: it is 0.
  template <class Index>
  constexpr long long source_of(Index i) const {
    long long at = begin;
    unsigned index[kAxes] = {};
    for (int axis = kAxes - 1; axis >= 0; --axis) {
      if (extents[axis] == 1) continue;
      index[axis] = static_cast<unsigned>(i % extents[axis]);
      i /= extents[axis];
      at += index[axis] * steps[axis];
    }
    for (int axis = 0; axis < 3; ++axis)
      if (lacks(axis, index[kResidues + axis], index[kTaps + axis])) return -1;
    return at;
  }
  constexpr bool lacks(int axis, unsigned residue, unsigned tap) const {
    return whole[axis] > 0 && tap == 0 && residue >= whole[axis];
  }
};

}  // namespace convtune
