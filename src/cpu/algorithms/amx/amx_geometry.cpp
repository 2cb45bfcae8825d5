// See amx_geometry.h.
#include "cpu/algorithms/amx/amx_geometry.h"

#include <algorithm>

#include "cpu/algorithms/amx/amx_tiles.h"

namespace convtune::cpu {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace

AmxGeometry::AmxGeometry(const ConvProblem& problem, const AmxConfig& config)
    : groups(problem.groups),
      group_channels(problem.c / problem.groups),
      group_filters(problem.k / problem.groups),
      batch(problem.n),
      input_rows(problem.h),
      input_cols(problem.w),
      output_rows(problem.p()),
      output_cols(problem.q()) {
  tile_rows = std::min<std::int64_t>(config.rows, output_rows);
  tile_cols = config.cols == 0 ? output_cols : std::min<std::int64_t>(config.cols, output_cols);
  row_tiles = ceil_div(output_rows, tile_rows);
  col_tiles = ceil_div(output_cols, tile_cols);

  filter_tiles = ceil_div(group_filters, kAmxFilters);
  blocks = ceil_div(filter_tiles, config.filter_tiles);
  task_blocks = config.filters == 0 ? blocks
                                    : std::clamp<std::int64_t>(
                                          config.filters / (config.filter_tiles * kAmxFilters), 1, blocks);
  filter_tasks = ceil_div(blocks, task_blocks);
  tasks = groups * batch * row_tiles * col_tiles * filter_tasks;

  const bool together = problem.dilation_w == 1;
  channels = config.gathered != 0 ? group_channels : round_up(group_channels, 2);
  // Rows and columns between those that a filter of one row or column reads are left out.
  row_step = problem.r == 1 ? problem.stride_h : 1;
  col_step = problem.s == 1 ? problem.stride_w : 1;
  const std::int64_t stride_w = problem.stride_w / col_step;
  rows_axis = axis_phases(problem.r, problem.stride_h / row_step, problem.dilation_h);
  position = stride_w * channels;
  window_cols = round_up((tile_cols - 1) * stride_w + (problem.s - 1) * problem.dilation_w + 1, stride_w);
  pitch = window_cols / stride_w;
  row = window_cols * channels;
  const std::int64_t units = tile_rows + rows_axis.halo;
  for (std::size_t r = 0; r < rows_axis.tap_unit.size(); ++r)
    for (std::int64_t s = 0; s < (together ? 1 : problem.s); ++s)
      runs.push_back((rows_axis.tap_phase[r] * units + rows_axis.tap_unit[r]) * row +
                     s * problem.dilation_w * channels);
  window_run = together ? problem.s * channels : channels;
  run = window_run;
  call = config.pixel_tiles * kAmxPixels;
  panel = 0;
  if (config.gathered != 0) {
    run = round_up(problem.r * problem.s * channels, kAmxElements);
    // Tiles are loaded long after their lines were stored, and each block of filters finds the weights of one
    // call in the first cache for the next.
    constexpr std::int64_t kPanelElements = 4096;
    panel = call * std::max<std::int64_t>(kPanelElements / (call * run), 1);
  }
  chunks = run / kAmxElements;
  tail = run % kAmxElements;
  words = run_count() * run / 2;

  const std::int64_t most = (tile_rows - 1) * pitch + tile_cols;
  const std::int64_t computed = std::max<std::int64_t>(round_up(most, kAmxPixels), kAmxPixels);
  // Tiles read positions behind the last one; staging and gathering write and read a vector more.
  const std::int64_t read =
      panel > 0 ? 0 : *std::max_element(runs.begin(), runs.end()) + computed * position + run;
  window = std::max(static_cast<std::int64_t>(rows_axis.phases.size()) * units * row, read) + kAmxElements;
  keeps_all = problem.layout == Layout::nchw && panel == 0;
  sums = (keeps_all ? computed : 2 * config.pixel_tiles * kAmxPixels) *
         std::min<std::int64_t>(config.filter_tiles, filter_tiles) * kAmxFilters;
}

AmxTile AmxGeometry::tile(std::int64_t index) const {
  AmxTile tile{};
  tile.index = index;
  tile.col = index % col_tiles * tile_cols;
  index /= col_tiles;
  tile.row = index % row_tiles * tile_rows;
  index /= row_tiles;
  tile.image = index % batch;
  tile.group = index / batch;
  tile.rows = std::min(tile_rows, output_rows - tile.row);
  tile.cols = std::min(tile_cols, output_cols - tile.col);
  return tile;
}

// Blocks have nearly equal widths.
AmxBlock AmxGeometry::block(std::int64_t index) const {
  const std::int64_t first = filter_tiles * index / blocks;
  return {first, filter_tiles * (index + 1) / blocks - first};
}

}  // namespace convtune::cpu
