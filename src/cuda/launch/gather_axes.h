// The axes of a gathering (problem/forward_parts.h) as its kernel takes them.
#pragma once

namespace convtune {

struct GatherAxes {
  static constexpr int kAxes = 9, kResidues = 1, kTaps = 6, kThreads = 256;
  long long begin = 0, elements = 0;
  long long extents[kAxes] = {}, steps[kAxes] = {};
  long long whole[3] = {};

  constexpr long long source_of(long long i) const {
    long long at = begin, index[kAxes] = {};
    for (int axis = kAxes; axis-- > 0; i /= extents[axis])
      index[axis] = i % extents[axis], at += index[axis] * steps[axis];
    for (int axis = 0; axis < 3; ++axis)
      if (whole[axis] > 0 && index[kTaps + axis] == 0 && index[kResidues + axis] >= whole[axis]) return -1;
    return at;
  }
};

}  // namespace convtune
