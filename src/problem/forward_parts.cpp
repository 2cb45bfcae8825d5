// See forward_parts.h.
#include "problem/forward_parts.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace convtune {
namespace {

using std::int64_t;

// One axis of the problem: x and dy along it.
struct Axis {
  int64_t size, filter, stride, dilation, pad, outputs;
};

// Residues from `first` on that have as many taps, as forward sees them.
struct AxisPart {
  int64_t first, residues, taps;
  int64_t before, after;  // padding of dy
  PartAxis lies;
};

AxisPart part_of(const Axis& a, int64_t first, int64_t residues, int64_t taps) {
  const int64_t reach = a.dilation * (taps - 1);  // of dy, by the taps of a residue
  // Positions before the first that meets dy are not computed, nor, as far as that can be, those of padding.
  const int64_t skipped = std::min(a.pad / a.stride, reach), before = reach - skipped;
  const int64_t crop = a.pad - a.stride * skipped - first;
  const int64_t positions = (a.size - 1 + crop) / a.stride + 1;
  const int64_t after = std::max<int64_t>(positions + reach - a.outputs - before, 0);
  return {first, residues, taps, before, after, {residues, a.stride, crop, a.size}};
}

std::vector<AxisPart> parts_of(const Axis& a, bool joined) {
  const int64_t most = (a.filter + a.stride - 1) / a.stride, longer = a.filter % a.stride;
  if (a.stride > 1 && a.dilation > 1 && a.filter > 1) return {};
  if (longer == 0) return {part_of(a, 0, a.stride, most)};
  if (a.filter < a.stride) return {};
  if (joined) {
    AxisPart all = part_of(a, 0, a.stride, most);
    all.lies.whole = longer;
    return {all};
  }
  return {part_of(a, 0, longer, most), part_of(a, longer, a.stride - longer, most - 1)};
}

ForwardPart combined(const ConvProblem& a, const std::array<Axis, 3>& axes,
                     const std::array<const AxisPart*, 3>& parts) {
  const auto& [d, h, w] = parts;
  const int64_t channels = a.c / a.groups, filters = a.k / a.groups;
  const int64_t residues = d->residues * h->residues * w->residues;
  ForwardPart part;
  ConvProblem& forward = part.problem = a;
  forward.direction = Direction::forward;
  forward.dtype.x = a.dtype.y, forward.dtype.y = a.dtype.x;
  forward.c = a.k, forward.k = a.c * residues;
  forward.d = a.z(), forward.h = a.p(), forward.w = a.q();
  forward.t = d->taps, forward.r = h->taps, forward.s = w->taps;
  forward.stride_d = forward.stride_h = forward.stride_w = 1;
  const auto dilation = [](const Axis& axis, const AxisPart& one) {
    return one.taps > 1 ? axis.dilation : 1;
  };
  forward.dilation_d = dilation(axes[0], *d), forward.dilation_h = dilation(axes[1], *h),
  forward.dilation_w = dilation(axes[2], *w);
  forward.pad_front = d->before, forward.pad_top = h->before, forward.pad_left = w->before;
  forward.pad_back = d->after, forward.pad_bottom = h->after, forward.pad_right = w->after;
  part.depth = d->lies, part.height = h->lies, part.width = w->lies;

  // Taps of residue r are r, r + stride ... of the filter, the last first.
  const int64_t column = 1, row = a.s, frame = a.r * a.s, channel = a.t * frame, filter = channels * channel;
  const auto last = [](const AxisPart& one) { return one.first + one.lies.stride * (one.taps - 1); };
  const auto step = [](const AxisPart& one) { return one.lies.stride; };
  part.weights = {.begin = last(*d) * frame + last(*h) * row + last(*w) * column,
                  .extents = {a.groups, d->residues, h->residues, w->residues, channels, filters, d->taps,
                              h->taps, w->taps},
                  .steps = {filters * filter, frame, row, column, channel, filter, -step(*d) * frame,
                            -step(*h) * row, -step(*w) * column},
                  .whole = {d->lies.whole, h->lies.whole, w->lies.whole}};
  part.bias = {.extents = {a.groups, residues, channels, 1, 1, 1, 1, 1, 1},
               .steps = {channels, 0, 1, 0, 0, 0, 0, 0, 0}};
  return part;
}

}  // namespace

int64_t Gathering::elements() const {
  int64_t all = 1;
  for (const int64_t extent : extents) all *= extent;
  return all;
}

int64_t Gathering::source_of(int64_t i) const {
  int64_t at = begin;
  std::array<int64_t, kAxes> index;
  for (std::size_t axis = kAxes; axis-- > 0; i /= extents[axis])
    index[axis] = i % extents[axis], at += index[axis] * steps[axis];
  for (std::size_t axis = 0; axis < whole.size(); ++axis)
    if (whole[axis] > 0 && index[kTaps + axis] == 0 && index[kResidues + axis] >= whole[axis]) return -1;
  return at;
}

bool ForwardPart::is_whole() const {
  const auto whole = [](const PartAxis& axis, int64_t positions) {
    return axis.residues == 1 && axis.stride == 1 && axis.crop == 0 && axis.extent == positions;
  };
  return whole(depth, problem.z()) && whole(height, problem.p()) && whole(width, problem.q());
}

std::vector<ForwardPart> forward_parts(const ConvProblem& a, bool joined) {
  if (a.direction != Direction::backward_data) return {};
  const std::array<Axis, 3> axes = {{{a.d, a.t, a.stride_d, a.dilation_d, a.pad_front, a.z()},
                                     {a.h, a.r, a.stride_h, a.dilation_h, a.pad_top, a.p()},
                                     {a.w, a.s, a.stride_w, a.dilation_w, a.pad_left, a.q()}}};
  joined = joined && a.groups == 1;
  const std::vector<AxisPart> depths = parts_of(axes[0], false), rows = parts_of(axes[1], joined),
                              columns = parts_of(axes[2], joined);
  std::vector<ForwardPart> parts;
  for (const AxisPart& d : depths)
    for (const AxisPart& h : rows)
      for (const AxisPart& w : columns)
        if (ForwardPart part = combined(a, axes, {&d, &h, &w});
            part.problem.z() > 0 && part.problem.p() > 0 && part.problem.q() > 0)
          parts.push_back(std::move(part));
  std::ranges::stable_sort(parts, std::greater(),
                           [](const ForwardPart& part) { return part.problem.flops(); });
  return parts;
}

}  // namespace convtune
