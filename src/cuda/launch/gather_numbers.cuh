// Numbers of one tensor in another order: filters before they are packed, in a training step for every
// gradient of x. A thread writes 16 bytes or more at once, and threads beside each other have channels beside
// each other, whose numbers a filter has beside each other: one by one in the order of the result, numbers of
// a 1x1 filter would be a sector each.
#include "cuda/launch/gather_axes.h"
#include "cuda/ptx/grid.cuh"

namespace convtune {

template <class Element>
__device__ __forceinline__ void store_gathered(Element* to, const Element (&values)[GatherAxes::kUnit]) {
  constexpr int kIn = 4 / sizeof(Element), kFours = GatherAxes::kUnit / kIn / 4;
  unsigned words[4 * kFours] = {};
#pragma unroll
  for (int i = 0; i < GatherAxes::kUnit; ++i)
    words[i / kIn] |= static_cast<unsigned>(values[i]) << (16 * (i % kIn));
#pragma unroll
  for (int i = 0; i < kFours; ++i)
    reinterpret_cast<uint4*>(to)[i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
}

// `to` begins at a multiple of 16 bytes.
template <class Element>
__global__ void __launch_bounds__(GatherAxes::kThreads)
    gather_numbers(const Element* __restrict__ from, Element* __restrict__ to, const GatherAxes axes) {
  using A = GatherAxes;
  ptx::wait_for_earlier_grids();
  unsigned left = blockIdx.x * A::kThreads + threadIdx.x;
  const auto take = [&](unsigned extent) {
    if (extent == 1) return 0u;
    const unsigned whole = left / extent, index = left - whole * extent;
    left = whole;
    return index;
  };
  const unsigned row = axes.row(), channel = take(axes.extents[A::kChannels]);
  const unsigned first = A::kUnit * take(axes.row_units()), rows = left;
  unsigned residues[3];
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) residues[axis] = take(axes.extents[A::kResidues + axis]);
  if (left >= axes.extents[0]) return;
  long long source = axes.begin + left * axes.steps[0] + channel * axes.steps[A::kChannels];
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) source += residues[axis] * axes.steps[A::kResidues + axis];

  left = first;
  unsigned taps[3];
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    taps[axis] = take(axes.extents[A::kTaps + axis]);
    source += taps[axis] * axes.steps[A::kTaps + axis];
  }
  source += left * axes.steps[A::kFilters];
  Element values[A::kUnit] = {};
  if (axes.has_plain_taps()) {
    const unsigned end = axes.extents[A::kTaps + 2];
    const long long next = axes.steps[A::kTaps + 2], to_filter = axes.steps[A::kFilters] - (end - 1) * next;
#pragma unroll
    for (int i = 0; i < A::kUnit; ++i) {
      if (first + i < row) values[i] = from[source];
      const bool is_last = ++taps[2] == end;
      source += is_last ? to_filter : next;
      if (is_last) taps[2] = 0;
    }
  } else {
#pragma unroll
    for (int i = 0; i < A::kUnit; ++i) {
      bool lacks = first + i >= row;
#pragma unroll
      for (int axis = 0; axis < 3; ++axis) lacks |= axes.lacks(axis, residues[axis], taps[axis]);
      if (!lacks) values[i] = from[source];
      bool next = true;  // tap of this axis
#pragma unroll
      for (int axis = 2; axis >= 0; --axis) {
        if (!next) continue;
        source += axes.steps[A::kTaps + axis];
        next = ++taps[axis] == axes.extents[A::kTaps + axis];
        if (next) taps[axis] = 0, source -= axes.extents[A::kTaps + axis] * axes.steps[A::kTaps + axis];
      }
      if (next) source += axes.steps[A::kFilters];
    }
  }

  to += (1LL * rows * axes.extents[A::kChannels] + channel) * row + first;
  if (row % A::kUnit == 0) {
    store_gathered(to, values);
  } else {
#pragma unroll
    for (int i = 0; i < A::kUnit; ++i)
      if (first + i < row) to[i] = values[i];
  }
}

}  // namespace convtune
