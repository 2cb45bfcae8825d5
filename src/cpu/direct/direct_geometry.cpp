// See direct_geometry.h.
#include "cpu/direct/direct_geometry.h"

#include <algorithm>
#include <numeric>

namespace convtune::cpu {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace

AxisPhases axis_phases(std::int64_t taps, std::int64_t stride, std::int64_t dilation) {
  AxisPhases axis;
  for (std::int64_t tap = 0; tap < taps; ++tap) axis.phases.push_back(tap * dilation % stride);
  std::sort(axis.phases.begin(), axis.phases.end());
  axis.phases.erase(std::unique(axis.phases.begin(), axis.phases.end()), axis.phases.end());
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const auto phase = std::lower_bound(axis.phases.begin(), axis.phases.end(), tap * dilation % stride);
    axis.tap_phase.push_back(phase - axis.phases.begin());
    axis.tap_unit.push_back(tap * dilation / stride);
  }
  axis.halo = axis.tap_unit.back();
  return axis;
}

AxisExtent::AxisExtent(std::int64_t taps, std::int64_t stride, std::int64_t dilation)
    : phases(std::min(taps, stride / std::gcd(stride, dilation))), halo((taps - 1) * dilation / stride) {}

DirectExtents::DirectExtents(const ConvProblem& problem, const DirectConfig& config, int lanes)
    : groups(problem.groups),
      output_rows(problem.p()),
      output_cols(problem.q()),
      group_channels(problem.c / problem.groups),
      group_filters(problem.k / problem.groups),
      taps(group_channels * problem.r * problem.s),
      rows_extent(problem.r, problem.stride_h, problem.dilation_h),
      cols_extent(problem.s, problem.stride_w, problem.dilation_w) {
  const std::int64_t p = output_rows, q = output_cols;
  tile_rows = std::min<std::int64_t>(config.rows, p);
  tile_cols = config.cols == 0 ? q : std::min<std::int64_t>(config.cols, q);
  row_tiles = ceil_div(p, tile_rows);
  col_tiles = ceil_div(q, tile_cols);
  pitch = tile_cols + cols_extent.halo;
  block = static_cast<std::int64_t>(config.vectors) * lanes;

  filter_blocks = ceil_div(group_filters, config.channels);
  task_filter_blocks = config.filters == 0
                           ? filter_blocks
                           : std::clamp<std::int64_t>(config.filters / config.channels, 1, filter_blocks);
  filter_tasks = ceil_div(filter_blocks, task_filter_blocks);

  // An odd number of cache lines a plane keeps planes from meeting in the same L1 sets.
  constexpr std::int64_t kLine = 16;
  plane = round_up((tile_rows + rows_extent.halo) * pitch, kLine);
  if (plane / kLine % 2 == 0) plane += kLine;
  channel = plane * cols_extent.phases * rows_extent.phases;
  // The last register tile reads past the last position.
  window = round_up(channel * group_channels + 2 * block, kLine);

  tasks = problem.n * problem.groups * row_tiles * col_tiles * filter_tasks;
  packed_block = taps * config.channels;
  pass_taps = config.taps == 0 ? taps : std::min<std::int64_t>(config.taps, taps);
  straight =
      problem.layout == Layout::nchw && (config.flat == 0 || (tile_cols == q && cols_extent.halo == 0));
  // Accumulators of one register tile suffice when its taps go by in one pass.
  keeps_all = pass_taps < taps;
  // A line that begins amid a vector of the output takes one vector more.
  const std::int64_t lead = straight ? lanes : 0;
  const std::int64_t kept = config.flat ? round_up((tile_rows - 1) * pitch + tile_cols + lead, block)
                                        : tile_rows * round_up(tile_cols + lead, lanes);
  acc_stride = keeps_all ? round_up(kept, kLine) : round_up(block, kLine);
  acc = acc_stride * config.channels * (keeps_all ? task_filter_blocks : 1) + kLine;

  const std::int64_t last_rows = p - (row_tiles - 1) * tile_rows;
  const std::int64_t last_cols = q - (col_tiles - 1) * tile_cols;
  double issued_positions = 0;
  auto line = lines.begin();
  for (const auto& [rows, row_count] :
       {std::pair{tile_rows, row_tiles - 1}, std::pair{last_rows, std::int64_t{1}}})
    for (const auto& [cols, col_count] :
         {std::pair{tile_cols, col_tiles - 1}, std::pair{last_cols, std::int64_t{1}}}) {
      const std::int64_t count = row_count * col_count;
      *line = config.flat ? DirectLines{count, (rows - 1) * pitch + cols, rows}
                          : DirectLines{count * rows, cols, 1};
      issued_positions +=
          static_cast<double>(line->count) * static_cast<double>(round_up(line->length, lanes));
      ++line;
    }
  issued_multiply_adds = issued_positions * static_cast<double>(problem.n * problem.groups) *
                         static_cast<double>(filter_blocks * config.channels) * static_cast<double>(taps);
}

DirectGeometry::DirectGeometry(const ConvProblem& problem, const DirectConfig& config, int lanes)
    : DirectExtents(problem, config, lanes),
      rows_axis(axis_phases(problem.r, problem.stride_h, problem.dilation_h)),
      cols_axis(axis_phases(problem.s, problem.stride_w, problem.dilation_w)) {
  tap_offsets.reserve(static_cast<std::size_t>(taps));
  for (std::int64_t c = 0; c < group_channels; ++c)
    for (std::size_t r = 0; r < static_cast<std::size_t>(problem.r); ++r)
      for (std::size_t s = 0; s < static_cast<std::size_t>(problem.s); ++s)
        tap_offsets.push_back(static_cast<std::int32_t>(
            c * channel + (rows_axis.tap_phase[r] * cols_extent.phases + cols_axis.tap_phase[s]) * plane +
            rows_axis.tap_unit[r] * pitch + cols_axis.tap_unit[s]));
}

DirectTile DirectGeometry::tile(std::int64_t index) const {
  DirectTile tile{};
  tile.index = index;
  tile.col = index % col_tiles * tile_cols;
  index /= col_tiles;
  tile.row = index % row_tiles * tile_rows;
  index /= row_tiles;
  tile.group = index % groups;
  tile.n = index / groups;
  tile.rows = std::min(tile_rows, output_rows - tile.row);
  tile.cols = std::min(tile_cols, output_cols - tile.col);
  return tile;
}

}  // namespace convtune::cpu
