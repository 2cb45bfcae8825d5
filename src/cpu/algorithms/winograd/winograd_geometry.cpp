// See winograd_geometry.h.
#include "cpu/algorithms/winograd/winograd_geometry.h"

#include <algorithm>

#include "cpu/tile/joined_rows.h"
#include "cpu/tile/winograd/winograd_precision.h"
#include "cpu/tile/winograd/winograd_strip.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kLine = 16;  // floats of a cache line, and of the longest vector

// Output channels of a register tile: where they are last, its vectors have nearly equal widths.
std::int64_t register_filters(const ConvProblem& problem, const WinogradConfig& config, int lanes) {
  if (problem.layout == Layout::nchw) return config.channels;
  const std::int64_t vectors = ceil_div(problem.k / problem.groups, lanes);
  return ceil_div(vectors, ceil_div(vectors, config.vectors)) * lanes;
}

}  // namespace

WinogradGeometry::WinogradGeometry(const ConvProblem& problem, const WinogradConfig& config, int lanes)
    : WinogradLayout(problem, config.tile, register_filters(problem, config, lanes), config.tiles,
                     config.filters),
      decomposed(is_decomposed(problem)) {
  // Many channels of one product stay in the first cache while a chunk's filters go by; those of all products
  // would not.
  constexpr std::int64_t kManyChannels = 32;
  together = group_channels < kManyChannels ? products : 1;

  stride = round_up(tiles, kLine);
  const bool last = problem.layout == Layout::nhwc;
  chunk_blocks =
      std::min(std::clamp<std::int64_t>(config.chunk / block_filters, 1, filter_blocks), task_filter_blocks);
  chunk_filters = chunk_blocks * block_filters;
  channel_rows = last ? round_up(group_channels, kLine) : group_channels;

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
      row_floats = std::max(row_floats, winograd_strip_floats(problem, lanes));
      half_stride = row_pitch;
      half_rows = std::ssize(rows_axis.products) * phases + 1;
    } else {
      // A row as one run, and all rows of a window split into their phases.
      row_floats = (1 + window_rows) * phases * row_pitch;
      half_rows = window_rows * std::ssize(cols_axis.products);
    }
  }
  sums_stride = last ? chunk_filters : m * stride + kLine;
  rows = memory.take("rows of the input", row_floats);
  half = memory.take("transformed rows", product_of(half_rows, half_stride));
  transformed =
      memory.take("transformed input",
                  product_of(last ? product_of(products, channel_rows) : first_channel.back(), stride));
  multiplied = memory.take("products",
                           product_of(products, chunk_filters, decomposed ? config.vectors * lanes : stride));
  sums = memory.take("sums", (last ? m * m : m) * sums_stride);
  joined_rows = -1;
  if (decomposed && config.stream != 0 && lanes == kLine && problem.q() % kLine == 0 && !problem.residual)
    joined_rows = memory.take("joined rows", product_of(group_filters, sizeof(JoinedRows)), 1);

  // Whole vectors of tiles and whole register tiles of output channels; or the other way round.
  issued_multiply_adds =
      static_cast<double>(issued_tiles(last ? config.channels : lanes)) *
      static_cast<double>(first_channel.back()) * static_cast<double>(problem.groups) *
      static_cast<double>(last ? round_up(group_filters, lanes) : filter_blocks * block_filters);
}

}  // namespace convtune::cpu
