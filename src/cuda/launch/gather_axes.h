// The axes of a gathering (problem/forward_parts.h) as its kernel takes them.
#pragma once

namespace convtune {

struct GatherAxes {
  static constexpr int kAxes = 9, kThreads = 256;
  long long begin = 0, elements = 0;
  long long extents[kAxes] = {}, steps[kAxes] = {};

  constexpr long long source_of(long long i) const {
    long long at = begin;
    for (int axis = kAxes; axis-- > 0; i /= extents[axis]) at += i % extents[axis] * steps[axis];
    return at;
  }
};

}  // namespace convtune
