// See direct_geometry.h.
#include "cpu/algorithms/direct/direct_geometry.h"

#include <algorithm>
#include <numeric>

namespace convtune::cpu {
namespace {

// Products of words a sum.
std::int64_t count_taps(const ConvProblem& problem, const ConvProblem& words) {
  const std::int64_t channels = words.c / words.groups;
  if (pairs_channels(problem) && problem.c / problem.groups % 2 != 0)
    return ((channels - 1) * words.s + ceil_div(words.s, 2)) * words.r;
  return channels * words.r * words.s;
}

}  // namespace

bool pairs_channels(const ConvProblem& problem) {
  return problem.dtype.x == DType::bf16 && problem.stride_w == 1;
}

ConvProblem in_words(const ConvProblem& problem) {
  ConvProblem words = problem;
  if (problem.dtype.x != DType::bf16) return words;
  if (pairs_channels(problem)) {
    words.c = ceil_div(problem.c / problem.groups, 2) * problem.groups;
    return words;
  }
  words.s = ceil_div(problem.s, 2);
  words.stride_w = problem.stride_w / 2;
  words.pad_left = words.pad_right = 0;
  words.w = (problem.q() - 1) * words.stride_w + words.s;
  return words;
}

AxisPhases axis_copies(std::int64_t taps, std::int64_t dilation) {
  AxisPhases axis;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    axis.phases.push_back(tap * dilation);
    axis.tap_phase.push_back(tap);
    axis.tap_unit.push_back(0);
  }
  return axis;
}

DirectExtents::DirectExtents(const ConvProblem& problem, const DirectConfig& config, int lanes)
    : OutputTiles(problem, config.rows, config.cols),
      FilterBlocks(problem, 1, config.channels, config.filters),
      words(in_words(problem)),
      group_channels(words.c / words.groups),
      taps(count_taps(problem, words)),
      rows_extent(problem.r, problem.stride_h, problem.dilation_h),
      cols_extent(words.s, words.stride_w, words.dilation_w) {
  if (config.staged == 2) cols_extent.phases = words.s, cols_extent.halo = 0;
  // Rows begin at a whole vector where no register tile spans two of them, so that taps without an offset
  // within the row are loaded from whole lines of the cache.
  pitch = config.flat ? tile_cols + cols_extent.halo : round_up(tile_cols + cols_extent.halo, lanes);
  block = static_cast<std::int64_t>(config.vectors) * lanes;

  // An odd number of cache lines a plane keeps planes from meeting in the same L1 sets.
  constexpr std::int64_t kLine = 16;
  plane = round_up(product_of(tile_rows + rows_extent.halo, pitch), kLine);
  if (plane / kLine % 2 == 0) plane += kLine;
  channel = product_of(plane, cols_extent.phases, rows_extent.phases);
  // Lines that begin before their first output (DirectExecutable::first_skipped) read up to a vector before
  // the window, and the last register tile reads past the last position.
  memory.take("vector before the window", kLine);
  window = memory.take("window", config.staged == 0 ? 0 : product_of(channel, group_channels) + 2 * block);
  sums = memory.take("sums", config.channels * block + kLine);
  if (config.staged == 0) plane = channel = problem.h * problem.w;

  shifted = config.staged == 2;
  tasks = tiles() * filter_tasks;
  packed_block = product_of(taps, config.channels);
  straight = problem.layout == Layout::nchw &&
             (config.flat == 0 || (tile_cols == output_cols && cols_extent.halo == 0));
  const std::int64_t element = size_of(problem.dtype.y);
  const bool whole_lines = output_rows * output_cols % CutLines::kFloats == 0;
  cut_lines = -1;
  if (config.stream != 0 && straight && whole_lines && lanes == CutLines::kFloats && element == 4)
    cut_lines = memory.take("cut lines", product_of(group_filters, CutLines::kFloats));
  line_unit = config.stream != 0 ? line_unit_of(std::gcd(tile_cols, output_cols), lanes, element) : 1;

  const std::int64_t last_rows = output_rows - (row_tiles - 1) * tile_rows;
  const std::int64_t last_cols = output_cols - (col_tiles - 1) * tile_cols;
  double issued_positions = 0;
  auto line = lines.begin();
  for (const auto& [rows, row_count] :
       {std::pair{tile_rows, row_tiles - 1}, std::pair{last_rows, std::int64_t{1}}})
    for (const auto& [cols, col_count] :
         {std::pair{tile_cols, col_tiles - 1}, std::pair{last_cols, std::int64_t{1}}}) {
      const std::int64_t count = row_count * col_count;
      *line = config.flat ? DirectLines{count, product_of(rows - 1, pitch) + cols, rows}
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
      rows_axis(axis_phases(words.r, words.stride_h, words.dilation_h)),
      cols_axis(config.staged == 2 ? axis_copies(words.s, words.dilation_w)
                                   : axis_phases(words.s, words.stride_w, words.dilation_w)) {
  const std::int64_t channels = problem.c / problem.groups;
  const bool bf16 = problem.dtype.x == DType::bf16, of_channels = pairs_channels(problem);
  const auto weight = [&](std::int64_t c, std::int64_t r, std::int64_t s) {
    return c < channels && s < problem.s ? (c * problem.r + r) * problem.s + s : -1;
  };
  struct Tap {
    std::int32_t offset;
    Halves weights;
  };
  std::vector<Tap> all;
  for (std::int64_t c = 0; c < group_channels; ++c)
    for (std::int64_t r = 0; r < words.r; ++r)
      for (std::int64_t s = 0; s < words.s; ++s) {
        const bool alone = of_channels && 2 * c + 1 == channels;  // a channel without another
        if (alone && s % 2 != 0) continue;
        const auto row = static_cast<std::size_t>(r), col = static_cast<std::size_t>(s);
        const std::int64_t offset =
            c * channel + (rows_axis.tap_phase[row] * cols_extent.phases + cols_axis.tap_phase[col]) * plane +
            rows_axis.tap_unit[row] * pitch + cols_axis.tap_unit[col];
        all.push_back({static_cast<std::int32_t>(offset),
                       !bf16         ? Halves{weight(c, r, s), -1}
                       : alone       ? Halves{weight(2 * c, r, s), weight(2 * c, r, s + 1)}
                       : of_channels ? Halves{weight(2 * c, r, s), weight(2 * c + 1, r, s)}
                                     : Halves{weight(c, r, 2 * s), weight(c, r, 2 * s + 1)}});
      }
  const auto halves = std::stable_partition(all.begin(), all.end(),
                                            [&](const Tap& tap) { return !bf16 || tap.weights.upper >= 0; });
  whole_taps = halves - all.begin();
  for (const Tap& tap : all) tap_offsets.push_back(tap.offset), tap_weights.push_back(tap.weights);
}

}  // namespace convtune::cpu
