// See amx_geometry.h.
#include "cpu/algorithms/amx/amx_geometry.h"

#include <algorithm>

#include "cpu/algorithms/amx/amx_tiles.h"
#include "cpu/tile/elements.h"

namespace convtune::cpu {

AmxExtents::AmxExtents(const ConvProblem& problem, const AmxConfig& config)
    : OutputTiles(problem, config.rows, config.cols),
      FilterBlocks(problem, kAmxFilters, config.filter_tiles, config.filters),
      group_channels(problem.c / problem.groups),
      tasks(tiles() * filter_tasks),
      // Rows and columns between those that a filter of one row or column reads are left out.
      row_step(problem.r == 1 ? problem.stride_h : 1),
      col_step(problem.s == 1 ? problem.stride_w : 1),
      rows_extent(problem.r, problem.stride_h / row_step, problem.dilation_h) {
  const bool together = problem.dilation_w == 1;
  channels = config.gathered != 0 ? group_channels : round_up(group_channels, 2);
  const std::int64_t stride_w = problem.stride_w / col_step;
  position = stride_w * channels;
  window_cols = round_up((tile_cols - 1) * stride_w + (problem.s - 1) * problem.dilation_w + 1, stride_w);
  pitch = window_cols / stride_w;
  row = product_of(window_cols, channels);
  window_runs = together ? problem.r : problem.r * problem.s;
  window_run = together ? problem.s * channels : channels;
  run = window_run;
  call = config.pixel_tiles * kAmxPixels;
  panel = 0;
  if (config.gathered != 0) {
    run = round_up(problem.r * problem.s * channels, kAmxElements);
    // Tiles are loaded long after their lines were stored, and each block of filters finds the weights of one
    // call in the first cache for the next.
    constexpr std::int64_t kPanelElements = 4096;
    panel = call * std::max<std::int64_t>(kPanelElements / product_of(call, run), 1);
  }
  chunks = run / kAmxElements;
  tail = run % kAmxElements;
  run_count = config.gathered != 0 ? 1 : window_runs;
  words = run_count * run / 2;

  const std::int64_t units = tile_rows + rows_extent.halo;
  const std::int64_t computed = round_up(product_of(tile_rows - 1, pitch) + tile_cols, kAmxPixels);
  // Tiles read positions behind the last one; staging and gathering write and read a vector more.
  const std::int64_t last_run =
      product_of(product_of(rows_extent.phases - 1, units) + rows_extent.halo, row) +
      (together ? 0 : product_of((problem.s - 1) * problem.dilation_w, channels));
  const std::int64_t read = panel > 0 ? 0 : last_run + product_of(computed, position) + run;
  window_elements = std::max(product_of(rows_extent.phases, units, row), read) + kAmxElements;
  keeps_all = problem.layout == Layout::nchw && panel == 0;
  sums_floats = product_of(keeps_all ? computed : 2 * call,
                           std::min<std::int64_t>(config.filter_tiles, filter_units) * kAmxFilters);

  // Gathering may read from a vector before the window.
  memory.take("vector before the window", kAmxElements, sizeof(Bf16));
  window = memory.take("window", window_elements, sizeof(Bf16));
  gathered = memory.take("gathered pixels", product_of(2, panel, run), sizeof(Bf16));
  sums = memory.take("sums", sums_floats);
}

AmxGeometry::AmxGeometry(const ConvProblem& problem, const AmxConfig& config)
    : AmxExtents(problem, config),
      rows_axis(axis_phases(problem.r, problem.stride_h / row_step, problem.dilation_h)) {
  const std::int64_t units = tile_rows + rows_axis.halo;
  for (std::size_t r = 0; r < rows_axis.tap_unit.size(); ++r)
    for (std::int64_t s = 0; s < (problem.dilation_w == 1 ? 1 : problem.s); ++s)
      runs.push_back((rows_axis.tap_phase[r] * units + rows_axis.tap_unit[r]) * row +
                     s * problem.dilation_w * channels);
}

}  // namespace convtune::cpu
