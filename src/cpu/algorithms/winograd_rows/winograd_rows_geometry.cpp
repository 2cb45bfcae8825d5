// See winograd_rows_geometry.h.
#include "cpu/algorithms/winograd_rows/winograd_rows_geometry.h"

#include <algorithm>

#include "cpu/tile/line_blocks.h"
#include "cpu/tile/stagger.h"

namespace convtune::cpu {
namespace {

// The sums of both outputs first, whose register tiles wait for each other.
constexpr std::array<int, 4> kOrder = {1, 2, 0, 3};

}  // namespace

WinogradRowsGeometry::WinogradRowsGeometry(const ConvProblem& problem, const WinogradRowsConfig& config,
                                           int lanes)
    : FilterBlocks(problem, 1, config.channels, config.filters),
      groups(problem.groups),
      group_channels(problem.c / problem.groups),
      output_rows(problem.p()),
      output_cols(problem.q()),
      axis(problem.r, problem.stride_h, 2),
      cols(axis_phases(problem.s, problem.stride_w, 1)) {
  pairs = std::clamp<std::int64_t>(config.rows, 1, std::max<std::int64_t>(ceil_div(output_rows, 2), 1));
  row_tasks = ceil_div(output_rows, 2 * pairs);
  tasks = output_cols == 0 ? 0 : problem.n * problem.groups * row_tasks * filter_tasks;

  // Whole vectors are read, the first of which may begin up to a vector early.
  pitch = round_up(kLead + output_cols + lanes + cols.halo, kLead);
  row_floats = product_of(std::ssize(cols.phases), pitch);
  window_rows = (2 * pairs - 1) * problem.stride_h + problem.r;
  const std::int64_t channel_step = product_of(pairs, row_floats);
  product_step = product_of(group_channels, channel_step);
  constexpr std::int64_t kMostInCache = 8 * 1024;  // floats, beside a register tile's weights
  along_rows =
      config.stream == 2 || product_of(std::ssize(axis.products), group_channels, row_floats) <= kMostInCache;
  line_unit = config.stream != 0 ? line_unit_of(output_cols, lanes, 4) : 1;
  may_stagger = config.vectors % line_unit == 0 && output_cols * 4 % kCacheLineBytes == 0 &&
                lines_meet(output_rows * output_cols * 4);

  rows = memory.take("rows of the input", product_of(window_rows, row_floats));
  transformed = memory.take("transformed input", product_of(std::ssize(axis.products), product_step));
  // A row that is split into phases is put together there first.
  sums =
      memory.take("sums", std::max<std::int64_t>(product_of(pitch, problem.stride_w),
                                                 std::int64_t{2} * config.channels * config.vectors * lanes));
  cut_lines = -1;
  if (config.stream == 1 && lanes == CutLines::kFloats && output_cols % lanes == 0)
    cut_lines = memory.take("cut lines", product_of(3, group_filters, CutLines::kFloats));
  ring = memory.take("staggered lines",
                     config.stream == 2 ? 2 * stagger_floats(config.channels, config.vectors, lanes) : 0);

  for (std::size_t i = 0; i < kOrder.size(); ++i) {
    const std::size_t before = taps.size();
    for (const WinogradPartProduct& product : axis.products)
      if (product.product == kOrder[i])
        for (std::int64_t c = 0; c < group_channels; ++c)
          for (std::int64_t s = 0; s < problem.s; ++s) {
            const auto at = static_cast<std::size_t>(s);
            taps.push_back({product.part, product.product, c, s});
            offsets.push_back(
                static_cast<std::int32_t>(place_of(product.part, product.product) * product_step +
                                          c * channel_step + cols.tap_phase[at] * pitch + cols.tap_unit[at]));
          }
    counts[i] = std::ssize(taps) - static_cast<std::int64_t>(before);
  }

  packed_block = std::ssize(taps) * config.channels;
  packed_bias = problem.groups * filter_blocks * packed_block;
  packed_weights = packed_bias + problem.groups * filter_blocks * config.channels;
  packed_bounds = packed_weights + problem.weight_elements();
  packed_floats = packed_bounds + 2;

  issued_multiply_adds = static_cast<double>(problem.n * problem.groups * ceil_div(output_rows, 2)) *
                         static_cast<double>(ceil_div(output_cols, lanes) * lanes) *
                         static_cast<double>(filter_blocks * packed_block);
}

std::int64_t WinogradRowsGeometry::place_of(std::size_t part, int product) const {
  std::int64_t place = 0;
  while (axis.products[static_cast<std::size_t>(place)].part != part ||
         axis.products[static_cast<std::size_t>(place)].product != product)
    ++place;
  return place;
}

WinogradRowsTask WinogradRowsGeometry::task(std::int64_t index) const {
  const std::int64_t of_rows = index / filter_tasks, plane = of_rows / row_tasks;
  WinogradRowsTask task{};
  task.n = plane / groups;
  task.group = plane % groups;
  task.row = of_rows % row_tasks * 2 * pairs;
  task.pairs = std::min(pairs, ceil_div(output_rows - task.row, 2));
  const FilterRange blocks = blocks_of(index);
  task.first_block = blocks.first, task.last_block = blocks.end;
  return task;
}

}  // namespace convtune::cpu
