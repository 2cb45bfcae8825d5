// See forward_parts.h.
#include "problem/forward_parts.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace convtune {
namespace {

using std::int64_t;

// One axis of the problem: x and dy along it.
struct Axis {
  int64_t size, filter, stride, dilation, pad, outputs;
};

// Residues that have as many taps on the same pixels of dy, as forward sees them: those of `tap` and of the
// taps behind it.
struct AxisPart {
  int64_t tap, residues, taps, period, dilation;  // taps of a residue are a period apart
  int64_t before = 0, after = 0;                  // padding of dy
  PartAxis lies{};
};

int64_t dilation_of(const Axis& a) {
  return a.filter > 1 ? a.dilation : 1;
}

// The first position of a tap's residue that is in dx.
int64_t begin_of(const Axis& a, int64_t tap) {
  return (a.pad - tap * dilation_of(a) % a.stride + a.stride - 1) / a.stride;
}

bool is_tight(const Axis& a) {
  const int64_t together = (a.size - 1 + a.pad % a.stride) / a.stride + 1,
                apart = (a.size - 1) / a.stride + 1;
  return 16 * together >= 17 * apart;
}

AxisPart placed(const Axis& a, AxisPart part, bool tight = false) {
  const int64_t step = dilation_of(a), first = part.tap * step % a.stride;
  const int64_t late = part.tap * step / a.stride;        // positions by which the first tap is behind dy
  const int64_t reach = part.dilation * (part.taps - 1);  // of dy, by the taps of a residue
  // Positions before the first that meets dy are not computed, nor, as far as that can be, those of padding.
  const int64_t skipped = std::min((tight ? begin_of(a, part.tap) : a.pad / a.stride) - late, reach);
  const int64_t crop = a.pad - a.stride * (skipped + late) - first;
  const int64_t positions = (a.size - 1 + crop) / a.stride + 1;
  part.before = reach - skipped;
  part.after = std::max<int64_t>(positions + reach - a.outputs - part.before, 0);
  part.lies = {part.residues, a.stride, crop, a.size, 0, part.residues > 1 ? step : 1};
  return part;
}

// Taps of the first residues, of which all others have the like: as many as there are before one comes again.
int64_t period_of(const Axis& a) {
  return a.stride / std::gcd(a.stride, dilation_of(a));
}

std::vector<AxisPart> parts_of(const Axis& a, Cut cut, bool tight) {
  const int64_t period = period_of(a), step = dilation_of(a), dilation = step * period / a.stride;
  const int64_t all = std::min(period, a.filter);
  if (all < a.stride && (!cut.bare || a.stride > kMostBareStride)) return {};
  if (step > 1 && a.stride > 1 && !cut.bare) return {};
  const auto taps_of = [&](int64_t tap) { return (a.filter - tap + period - 1) / period; };
  if (cut.joined && all == a.stride && step == 1 && a.filter % a.stride != 0) {
    AxisPart part = placed(a, {0, a.stride, taps_of(0), period, dilation});
    part.lies.whole = a.filter % a.stride;
    const int64_t positions = (a.size - 1) / a.stride + 1;
    if (cut.late && part.lies.crop > 0 && positions < (a.size - 1 + part.lies.crop) / a.stride + 1) {
      part.lies.begins_late = true;
      part.after =
          std::max<int64_t>(positions + part.dilation * (part.taps - 1) - a.outputs - part.before, 0);
    }
    return {part};
  }
  std::vector<AxisPart> parts;
  const bool apart = tight && is_tight(a);
  for (int64_t tap = 0, end = 0; tap < all; tap = end) {
    const auto is_alike = [&](int64_t other) {
      return taps_of(other) == taps_of(tap) && other * step / a.stride == tap * step / a.stride &&
             (!apart || begin_of(a, other) == begin_of(a, tap));
    };
    while (end < all && is_alike(end)) ++end;
    parts.push_back(
        placed(a, {tap, end - tap, taps_of(tap), period, dilation}, apart || (tight && end == tap + 1)));
  }
  return parts;
}

std::array<Axis, 3> axes_of(const ConvProblem& a) {
  return {{{a.d, a.t, a.stride_d, a.dilation_d, a.pad_front, a.z()},
           {a.h, a.r, a.stride_h, a.dilation_h, a.pad_top, a.p()},
           {a.w, a.s, a.stride_w, a.dilation_w, a.pad_left, a.q()}}};
}

ForwardPart combined(const ConvProblem& a, const std::array<const AxisPart*, 3>& parts) {
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
  const auto dilation = [](const AxisPart& one) { return one.taps > 1 ? one.dilation : 1; };
  forward.dilation_d = dilation(*d), forward.dilation_h = dilation(*h), forward.dilation_w = dilation(*w);
  forward.pad_front = d->before, forward.pad_top = h->before, forward.pad_left = w->before;
  forward.pad_back = d->after, forward.pad_bottom = h->after, forward.pad_right = w->after;
  part.depth = d->lies, part.height = h->lies, part.width = w->lies;

  // Taps of a residue, the last first.
  const int64_t column = 1, row = a.s, frame = a.r * a.s, channel = a.t * frame, filter = channels * channel;
  const auto last = [](const AxisPart& one) { return one.tap + one.period * (one.taps - 1); };
  const auto step = [](const AxisPart& one) { return one.period; };
  part.weights = {.begin = last(*d) * frame + last(*h) * row + last(*w) * column,
                  .extents = {a.groups, d->residues, h->residues, w->residues, channels, filters, d->taps,
                              h->taps, w->taps},
                  .steps = {filters * filter, frame, row, column, channel, filter, -step(*d) * frame,
                            -step(*h) * row, -step(*w) * column},
                  .whole = {d->lies.whole, h->lies.whole, w->lies.whole}};
  part.bias = {.extents = {a.groups, residues, channels, 1, 1, 1, 1, 1, 1},
               .steps = {channels, 0, 1, 0, 0, 0, 0, 0, 0}};
  if (a.snake != Snake::none)  // biases, alphas and scales
    part.bias = {.extents = {3, a.groups, residues, channels, 1, 1, 1, 1, 1},
                 .steps = {a.c, channels, 0, 1, 0, 0, 0, 0, 0}};
  return part;
}

std::vector<ForwardPart> all_parts(const ConvProblem& a, Cut cut, bool tight) {
  if (a.direction != Direction::backward_data) return {};
  const std::array<Axis, 3> axes = axes_of(a);
  const auto of_axis = [&](const Axis& axis, bool joined) {
    return parts_of(axis, {.joined = joined, .bare = cut.bare, .late = cut.late}, tight);
  };
  const bool one_group = a.groups == 1;
  const std::vector<AxisPart> depths = of_axis(axes[0], false),
                              rows = of_axis(axes[1], cut.joined && cut.rows && one_group),
                              columns = of_axis(axes[2], cut.joined && (one_group || cut.grouped));
  std::vector<ForwardPart> parts;
  for (const AxisPart& d : depths)
    for (const AxisPart& h : rows)
      for (const AxisPart& w : columns)
        if (ForwardPart part = combined(a, {&d, &h, &w});
            part.problem.z() > 0 && part.problem.p() > 0 && part.problem.q() > 0)
          parts.push_back(std::move(part));
  std::ranges::stable_sort(parts, std::greater(),
                           [](const ForwardPart& part) { return part.problem.flops(); });
  return parts;
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

int64_t PartAxis::late(int64_t residue) const {
  return begins_late ? (std::max<int64_t>(crop - residue * step, 0) + stride - 1) / stride : 0;
}

bool ForwardPart::is_whole() const {
  const auto whole = [](const PartAxis& axis, int64_t positions) {
    return axis.residues == 1 && axis.stride == 1 && axis.crop == 0 && axis.extent == positions;
  };
  return whole(depth, problem.z()) && whole(height, problem.p()) && whole(width, problem.q());
}

std::vector<ForwardPart> forward_parts(const ConvProblem& a, Cut cut) {
  return all_parts(a, cut, false);
}
std::vector<ForwardPart> tight_parts(const ConvProblem& a, Cut cut) {
  return all_parts(a, cut, true);
}

std::array<std::uint64_t, 3> met_residues(const ConvProblem& a) {
  std::array<std::uint64_t, 3> met{};
  const std::array<Axis, 3> axes = axes_of(a);
  for (std::size_t i = 0; i < met.size(); ++i) {
    if (axes[i].stride > kMostBareStride) met[i] = ~std::uint64_t{0};
    for (int64_t tap = 0; tap < axes[i].filter && axes[i].stride <= kMostBareStride; ++tap)
      met[i] |= std::uint64_t{1} << tap * dilation_of(axes[i]) % axes[i].stride;
  }
  return met;
}

bool has_bare_residues(const ConvProblem& a, bool of_columns) {
  const std::array<Axis, 3> axes = axes_of(a);
  return std::any_of(axes.begin(), axes.end() - !of_columns,
                     [](const Axis& axis) { return std::min(period_of(axis), axis.filter) < axis.stride; });
}

}  // namespace convtune
