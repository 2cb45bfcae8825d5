// See winograd_geometry.h.
#include "cpu/algorithms/winograd/winograd_geometry.h"

#include <algorithm>

#include "cpu/tile/winograd/winograd_precision.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kLine = 16;  // floats of a cache line, and of the longest vector

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

}  // namespace

WinogradGeometry::WinogradGeometry(const ConvProblem& problem, const WinogradConfig& config, int lanes)
    : group_channels(problem.c / problem.groups),
      group_filters(problem.k / problem.groups),
      m(config.tile),
      inputs(winograd_inputs(config.tile)),
      products(inputs * inputs),
      decomposed(is_decomposed(problem)),
      rows_axis(problem.r, problem.stride_h, config.tile),
      cols_axis(problem.s, problem.stride_w, config.tile) {
  for (std::int64_t i = 0, channels = 0; i <= products; ++i) {
    first_channel.push_back(channels);
    if (i == products) break;
    depth.push_back(group_channels * rows_axis.parts_with[i / inputs] * cols_axis.parts_with[i % inputs]);
    channels += depth.back();
  }
  // Many channels of one product stay in the first cache while a chunk's filters go by; those of all products
  // would not.
  constexpr std::int64_t kManyChannels = 32;
  together = group_channels < kManyChannels ? products : 1;
  row_phases = std::min(problem.dilation_h, problem.p());
  col_phases = std::min(problem.dilation_w, problem.q());
  image_rows = ceil_div(problem.p(), m * problem.dilation_h);
  image_cols = ceil_div(problem.q(), m * problem.dilation_w);
  image_tiles = image_rows * image_cols;
  all_tiles = problem.n * row_phases * col_phases * image_tiles;

  tiles = std::clamp<std::int64_t>(config.tiles, 1, std::max<std::int64_t>(all_tiles, 1));
  stride = round_up(tiles, kLine);
  const bool last = problem.layout == Layout::nhwc;
  const std::int64_t vectors = ceil_div(group_filters, lanes);
  block_filters = last ? ceil_div(vectors, ceil_div(vectors, config.vectors)) * lanes : config.channels;
  filter_blocks = ceil_div(group_filters, block_filters);
  const auto blocks = [&](std::int64_t filters) {
    return std::clamp<std::int64_t>(filters / block_filters, 1, filter_blocks);
  };
  task_filter_blocks = config.filters == 0 ? filter_blocks : blocks(config.filters);
  chunk_blocks = std::min(blocks(config.chunk), task_filter_blocks);
  filter_tasks = ceil_div(filter_blocks, task_filter_blocks);
  chunk_filters = chunk_blocks * block_filters;
  channel_rows = last ? round_up(group_channels, kLine) : group_channels;
  tile_tasks = ceil_div(all_tiles, tiles);
  tasks = problem.groups * tile_tasks * filter_tasks;

  // A vector's loads reach past the last tile: of m + 2 inputs they read 2 m, of every lane.
  row_pitch = last ? 0 : round_up(m * tiles + 2 * m * kLine, kLine);
  half_stride = last ? 0 : stride + kLine;
  window_rows = inputs;
  std::int64_t row_floats = last ? channel_rows : inputs * row_pitch, half_rows = products;
  if (decomposed) {
    const std::int64_t phases = m * problem.stride_w,
                       units = std::min(tiles, image_cols) + problem.s / phases;
    row_pitch = round_up(units + 2 * kLine, kLine);
    window_rows = problem.r + problem.stride_h;
    down_first = image_cols >= lanes + lanes / 2;
    if (down_first) {
      // Rows of a window and their products, and the phases of those. An odd number of lines keeps rows from
      // meeting in the same sets of the first cache.
      strip_pitch = round_up(phases * std::max(units + 1, kLine) + kLine, kLine) | kLine;
      row_floats = (window_rows + std::ssize(rows_axis.products)) * strip_pitch;
      // Or the rows that WinogradStrips copies, of a strip of at most 16 tiles.
      row_floats = std::max(row_floats, window_rows * (phases + 2) * kLine);
      half_stride = row_pitch;
      half_rows = std::ssize(rows_axis.products) * phases + 1;
    } else {
      // A row as one run, and all rows of a window split into their phases.
      row_floats = (1 + window_rows) * phases * row_pitch;
      half_rows = window_rows * std::ssize(cols_axis.products);
    }
  }
  sums_stride = last ? chunk_filters : m * stride + kLine;
  rows = 0;
  half = rows + row_floats;
  transformed = half + half_rows * half_stride;
  multiplied = transformed + (last ? products * channel_rows : first_channel.back()) * stride;
  sums = multiplied + products * chunk_filters * (decomposed ? config.vectors * lanes : stride);
  scratch = sums + (last ? m * m : m) * sums_stride;

  packed_bias = problem.groups * filter_blocks * first_channel.back() * block_filters;
  packed_weights = packed_bias + problem.groups * filter_blocks * block_filters;
  packed_floats = packed_weights + problem.weight_elements();

  // Whole vectors of tiles and whole register tiles of output channels; or the other way round.
  const std::int64_t unit = last ? config.channels : lanes;
  const std::int64_t rest = all_tiles - (tile_tasks - 1) * tiles;
  const std::int64_t whole =
      tile_tasks == 0 ? 0 : (tile_tasks - 1) * round_up(tiles, unit) + round_up(rest, unit);
  issued_multiply_adds = static_cast<double>(whole) *
                         static_cast<double>(first_channel.back() * problem.groups) *
                         static_cast<double>(last ? vectors * lanes : filter_blocks * block_filters);
}

WinogradTask WinogradGeometry::task(std::int64_t index) const {
  const std::int64_t of_tiles = index / filter_tasks;
  WinogradTask task{};
  task.group = of_tiles / tile_tasks;
  task.first_tile = of_tiles % tile_tasks * tiles;
  task.tiles = std::min(tiles, all_tiles - task.first_tile);
  task.first_block = index % filter_tasks * task_filter_blocks;
  task.last_block = std::min(task.first_block + task_filter_blocks, filter_blocks);
  return task;
}

double winograd_scratch_bytes(const ConvProblem& problem, const WinogradConfig& config) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double m = config.tile, products = (m + 2) * (m + 2);
  const double most = number(problem.n) * (number(problem.p()) / m + number(problem.dilation_h)) *
                      (number(problem.q()) / m + number(problem.dilation_w));
  const double stride = std::min<double>(config.tiles, most) + 2 * kLine;
  const double filters = std::min<double>(config.chunk, number(problem.k / problem.groups)) +
                         std::max<double>(config.channels, static_cast<double>(config.vectors) * kLine);
  const WinogradAxis rows(problem.r, problem.stride_h, config.tile),
      cols(problem.s, problem.stride_w, config.tile);
  const double row_products = number(std::ssize(rows.products)),
               col_products = number(std::ssize(cols.products));
  const double channels = number(problem.c / problem.groups) * row_products * col_products;
  const double phases = m * number(problem.stride_w);
  const double half = std::max(number(problem.r + problem.stride_h) * col_products, phases * row_products);
  const double lines = phases * (2 + row_products + number(problem.r + problem.stride_h)) + products;
  return 4 * stride * (channels + half + lines + products * (filters + kLine));
}

}  // namespace convtune::cpu
