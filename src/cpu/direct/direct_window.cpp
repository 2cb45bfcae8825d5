// See direct_window.h.
#include "cpu/direct/direct_window.h"

#include <algorithm>
#include <vector>

namespace convtune::cpu {
namespace {

// Elements [from, end) of a phase plane's row lie inside the image; `origin` is the input column behind
// element 0. The same for every row of a tile.
struct PhaseRange {
  std::int64_t origin, from, end;
};

struct Staging {
  Staging(const ConvProblem& p, const DirectGeometry& g, const DirectKernels& k, std::int64_t first_col)
      : geometry(g), kernels(k), stride(p.stride_w), step(p.layout == Layout::nchw ? 1 : p.c) {
    for (const std::int64_t phase : g.cols_axis.phases) {
      const std::int64_t origin = first_col * stride + phase - p.pad_left;
      const std::int64_t from = origin >= 0 ? 0 : std::min((-origin + stride - 1) / stride, g.pitch);
      const std::int64_t end = origin >= p.w ? 0 : (p.w - origin + stride - 1) / stride;
      ranges.push_back({origin, from, std::clamp(end, from, g.pitch)});
    }
    // Where every phase is used, one sweep over the row splits them all between the largest `from` and
    // the smallest `end`.
    if (step != 1 || static_cast<std::int64_t>(ranges.size()) != stride) return;
    swept_end = g.pitch;
    for (const PhaseRange& range : ranges) {
      swept_from = std::max(swept_from, range.from);
      swept_end = std::min(swept_end, range.end);
    }
    if (swept_from >= swept_end) swept_from = swept_end = 0;
  }

  void row(const float* input, float* to) const {
    if (swept_from < swept_end)
      kernels.split_phases(input + ranges[0].origin + swept_from * stride, stride, stride,
                           swept_end - swept_from, to + swept_from, geometry.plane);
    float* plane = to;
    for (const PhaseRange& range : ranges) {
      const std::int64_t gap_from = std::clamp(swept_from, range.from, range.end);
      const std::int64_t gap_end = std::clamp(swept_end, gap_from, range.end);
      const auto copy = [&](std::int64_t begin, std::int64_t stop) {
        if (begin < stop)
          kernels.split_phases(input + (range.origin + begin * stride) * step, stride * step, 1, stop - begin,
                               plane + begin, 0);
      };
      std::fill_n(plane, range.from, 0.0f);
      copy(range.from, gap_from);
      copy(gap_end, range.end);
      std::fill_n(plane + range.end, geometry.pitch - range.end, 0.0f);
      plane += geometry.plane;
    }
  }

  void padding(float* to) const {
    for (std::size_t j = 0; j < ranges.size(); ++j)
      std::fill_n(to + static_cast<std::int64_t>(j) * geometry.plane, geometry.pitch, 0.0f);
  }

  const DirectGeometry& geometry;
  const DirectKernels& kernels;
  std::int64_t stride, step;  // step: floats from one input column to the next
  std::vector<PhaseRange> ranges;
  std::int64_t swept_from = 0, swept_end = 0;
};

}  // namespace

void stage_window(const ConvProblem& problem, const DirectGeometry& geometry, const DirectKernels& kernels,
                  const DirectTile& tile, const float* x, float* window) {
  const bool nchw = problem.layout == Layout::nchw;
  const std::int64_t step = nchw ? 1 : problem.c;
  const std::int64_t channel_step = nchw ? problem.h * problem.w : 1;
  const std::int64_t row_phase_step =
      static_cast<std::int64_t>(geometry.cols_axis.phases.size()) * geometry.plane;
  const float* image =
      x + tile.n * problem.c * problem.h * problem.w + tile.group * geometry.group_channels * channel_step;
  const Staging staging(problem, geometry, kernels, tile.col);
  for (std::int64_t c = 0; c < geometry.group_channels; ++c) {
    float* planes = window + c * geometry.channel;
    for (const std::int64_t phase : geometry.rows_axis.phases) {
      for (std::int64_t unit = 0; unit < tile.rows + geometry.rows_axis.halo; ++unit) {
        const std::int64_t row = (tile.row + unit) * problem.stride_h + phase - problem.pad_top;
        float* const to = planes + unit * geometry.pitch;
        if (row >= 0 && row < problem.h)
          staging.row(image + c * channel_step + row * problem.w * step, to);
        else
          staging.padding(to);
      }
      planes += row_phase_step;
    }
  }
}

WindowAhead::WindowAhead(const ConvProblem& problem, const DirectGeometry& geometry, const DirectTile& now,
                         const DirectTile& next, const float* x, std::int64_t calls) {
  const auto first_row = [&](const DirectTile& tile) {
    return tile.row * problem.stride_h - problem.pad_top;
  };
  const auto end_row = [&](const DirectTile& tile) {
    return first_row(tile) + (tile.rows - 1) * problem.stride_h + (problem.r - 1) * problem.dilation_h + 1;
  };
  const bool follows = now.n == next.n && now.group == next.group && now.row < next.row;
  const std::int64_t from = std::clamp<std::int64_t>(
      follows ? std::max(first_row(next), end_row(now)) : first_row(next), 0, problem.h);
  const std::int64_t to = std::clamp(end_row(next), from, problem.h);
  // Rows of a plane lie side by side, or those of all channels do.
  const bool nchw = problem.layout == Layout::nchw;
  const std::int64_t pixel = nchw ? 1 : problem.c, plane = problem.h * problem.w;
  constexpr std::int64_t kFloat = sizeof(float);
  planes_ = nchw ? geometry.group_channels : 1;
  plane_step_ = plane * kFloat;
  bytes_ = (to - from) * problem.w * pixel * kFloat;
  plane_ = reinterpret_cast<const char*>(x + next.n * problem.c * plane +
                                         (nchw ? next.group * geometry.group_channels * plane : 0) +
                                         from * problem.w * pixel);
  lines_ = planes_ * (bytes_ / kLine + 1) / std::max<std::int64_t>(calls, 1) + 1;
  // Too little is computed with them to hide them behind it.
  constexpr std::int64_t kMostLines = 8;
  if (lines_ > kMostLines) lines_ = 0;
}

}  // namespace convtune::cpu
