// See winograd_rows_geometry.h.
#include "cpu/algorithms/winograd_rows/winograd_rows_geometry.h"

#include <algorithm>

namespace convtune::cpu {
namespace {

std::int64_t parts_of(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// The sums of both outputs first, whose register tiles wait for each other.
constexpr std::array<int, 4> kOrder = {1, 2, 0, 3};

}  // namespace

WinogradRowsGeometry::WinogradRowsGeometry(const ConvProblem& problem, const WinogradRowsConfig& config,
                                           int lanes)
    : groups(problem.groups),
      group_channels(problem.c / problem.groups),
      group_filters(problem.k / problem.groups),
      output_rows(problem.p()),
      output_cols(problem.q()),
      axis(problem.r, problem.stride_h, 2),
      cols(axis_phases(problem.s, problem.stride_w, 1)) {
  pairs = std::clamp<std::int64_t>(config.rows, 1, std::max<std::int64_t>(parts_of(output_rows, 2), 1));
  row_tasks = parts_of(output_rows, 2 * pairs);
  filter_blocks = parts_of(group_filters, config.channels);
  task_filter_blocks = config.filters == 0
                           ? filter_blocks
                           : std::clamp<std::int64_t>(config.filters / config.channels, 1, filter_blocks);
  filter_tasks = parts_of(filter_blocks, task_filter_blocks);
  tasks = output_cols == 0 ? 0 : problem.n * problem.groups * row_tasks * filter_tasks;

  // Whole vectors are read, the first of which may begin up to a vector early.
  pitch = parts_of(kLead + output_cols + lanes + cols.halo, kLead) * kLead;
  row_floats = std::ssize(cols.phases) * pitch;
  window_rows = (2 * pairs - 1) * problem.stride_h + problem.r;
  product_step = group_channels * pairs * row_floats;
  constexpr std::int64_t kMostInCache = 8 * 1024;  // floats, beside a register tile's weights
  along_rows = config.stream == 2 || std::ssize(axis.products) * group_channels * row_floats <= kMostInCache;
  rows = 0;
  transformed = rows + window_rows * row_floats;
  // A row that is split into phases is put together behind the window first.
  sums = transformed + std::ssize(axis.products) * product_step;
  ring = sums + std::max<std::int64_t>(pitch * problem.stride_w,
                                       std::int64_t{2} * config.channels * config.vectors * lanes);
  ring = parts_of(ring, kLead) * kLead;
  line_unit = config.stream != 0 ? line_unit_of(output_cols, lanes, 4) : 1;
  may_stagger = config.vectors % line_unit == 0 && output_cols * 4 % kCacheLineBytes == 0 &&
                lines_meet(output_rows * output_cols * 4);
  scratch = ring + (config.stream == 2 ? 2 * stagger_floats(config.channels, config.vectors, lanes) : 0);

  for (std::size_t i = 0; i < kOrder.size(); ++i) {
    const std::size_t before = taps.size();
    for (const WinogradPartProduct& product : axis.products)
      if (product.product == kOrder[i])
        for (std::int64_t c = 0; c < group_channels; ++c)
          for (std::int64_t s = 0; s < problem.s; ++s) {
            const auto at = static_cast<std::size_t>(s);
            taps.push_back({product.part, product.product, c, s});
            offsets.push_back(static_cast<std::int32_t>(
                place_of(product.part, product.product) * product_step + c * pairs * row_floats +
                cols.tap_phase[at] * pitch + cols.tap_unit[at]));
          }
    counts[i] = std::ssize(taps) - static_cast<std::int64_t>(before);
  }

  packed_block = std::ssize(taps) * config.channels;
  packed_bias = problem.groups * filter_blocks * packed_block;
  packed_weights = packed_bias + problem.groups * filter_blocks * config.channels;
  packed_bounds = packed_weights + problem.weight_elements();
  packed_floats = packed_bounds + 2;

  issued_multiply_adds = static_cast<double>(problem.n * problem.groups * parts_of(output_rows, 2)) *
                         static_cast<double>(parts_of(output_cols, lanes) * lanes) *
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
  task.pairs = std::min(pairs, parts_of(output_rows - task.row, 2));
  task.first_block = index % filter_tasks * task_filter_blocks;
  task.last_block = std::min(task.first_block + task_filter_blocks, filter_blocks);
  return task;
}

double winograd_rows_scratch_bytes(const ConvProblem& problem, const WinogradRowsConfig& config) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double pairs = std::min<double>(config.rows, number(problem.p()) / 2 + 1);
  const double phases = number(std::min(problem.s, problem.stride_w));
  const double row = phases * (number(problem.q() + problem.s) + 64);
  const double products = number(std::ssize(WinogradAxis(problem.r, problem.stride_h, 2).products));
  const double window = 2 * pairs * number(problem.stride_h) + number(problem.r);
  return 4 *
         (row * (window + products * number(problem.c / problem.groups) * pairs) +
          number(problem.stride_w) * number(problem.q() + problem.s + 64) +
          (config.stream == 2 ? 2 * 16 * Stagger::kSteps + 32.0 : 32.0) * config.channels * config.vectors);
}

}  // namespace convtune::cpu
