// See direct_window.h.
#include "cpu/direct_window.h"

#include <algorithm>
#include <utility>

namespace convtune::cpu {
namespace {

struct Staging {
  const Conv2dProblem& problem;
  const DirectGeometry& geometry;
  const DirectKernels& kernels;
  std::int64_t first_col;  // of the tile's output
  std::int64_t step;       // floats from one input column to the next

  // Input column behind element 0 of a phase plane.
  std::int64_t origin(std::int64_t phase) const {
    return first_col * problem.stride_w + phase - problem.pad_left;
  }

  // Elements [first, second) of a phase lie inside the image.
  std::pair<std::int64_t, std::int64_t> inside(std::int64_t phase) const {
    const std::int64_t stride = problem.stride_w, column = origin(phase), pitch = geometry.pitch;
    const std::int64_t from = column >= 0 ? 0 : std::min((-column + stride - 1) / stride, pitch);
    const std::int64_t end = column >= problem.w ? 0 : (problem.w - column + stride - 1) / stride;
    return {from, std::clamp(end, from, pitch)};
  }

  void row(const float* input, float* to) const {
    const auto& phases = geometry.cols_axis.phases;
    const std::int64_t stride = problem.stride_w;
    // Where every phase is used and lies inside, one sweep over the row splits them all.
    std::int64_t swept_from = 0, swept_end = 0;
    if (step == 1 && static_cast<std::int64_t>(phases.size()) == stride) {
      swept_end = geometry.pitch;
      for (const std::int64_t phase : phases) {
        const auto [from, end] = inside(phase);
        swept_from = std::max(swept_from, from);
        swept_end = std::min(swept_end, end);
      }
      if (swept_from < swept_end)
        kernels.split_phases(input + origin(0) + swept_from * stride, stride, stride, swept_end - swept_from,
                             to + swept_from, geometry.plane);
      else
        swept_from = swept_end = 0;
    }
    for (std::size_t j = 0; j < phases.size(); ++j) {
      float* plane = to + static_cast<std::int64_t>(j) * geometry.plane;
      const auto [from, end] = inside(phases[j]);
      const std::int64_t gap_from = std::clamp(swept_from, from, end),
                         gap_end = std::clamp(swept_end, gap_from, end);
      const auto copy = [&, phase = phases[j]](std::int64_t begin, std::int64_t stop) {
        if (begin < stop)
          kernels.split_phases(input + (origin(phase) + begin * stride) * step, stride * step, 1,
                               stop - begin, plane + begin, 0);
      };
      std::fill_n(plane, from, 0.0f);
      copy(from, gap_from);
      copy(gap_end, end);
      std::fill_n(plane + end, geometry.pitch - end, 0.0f);
    }
  }

  void padding(float* to) const {
    for (std::size_t j = 0; j < geometry.cols_axis.phases.size(); ++j)
      std::fill_n(to + static_cast<std::int64_t>(j) * geometry.plane, geometry.pitch, 0.0f);
  }
};

}  // namespace

void stage_window(const Conv2dProblem& problem, const DirectGeometry& geometry, const DirectKernels& kernels,
                  const DirectTile& tile, const float* x, float* window) {
  const bool nchw = problem.layout == Layout::nchw;
  const std::int64_t step = nchw ? 1 : problem.c;
  const std::int64_t channel_step = nchw ? problem.h * problem.w : 1;
  const std::int64_t row_phase_step =
      static_cast<std::int64_t>(geometry.cols_axis.phases.size()) * geometry.plane;
  const float* image =
      x + tile.n * problem.c * problem.h * problem.w + tile.group * geometry.group_channels * channel_step;
  const Staging staging{problem, geometry, kernels, tile.col, step};
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

}  // namespace convtune::cpu
