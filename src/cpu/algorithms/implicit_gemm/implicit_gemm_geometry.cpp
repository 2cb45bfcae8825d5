// See implicit_gemm_geometry.h.
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"

namespace convtune::cpu {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

bool reads_planes(const ConvProblem& problem, const ImplicitGemmConfig& config) {
  return problem.layout == Layout::nchw && config.joined != 0 && config.staged == 0;
}

bool reads_side_by_side(const ConvProblem& problem, const ImplicitGemmConfig& config) {
  const bool one_row = std::min<std::int64_t>(config.rows, problem.p()) <= 1;
  const bool whole_rows = problem.q() == problem.w && (config.cols == 0 || config.cols >= problem.w);
  return reads_planes(problem, config) && config.bf16 == 0 && problem.s == 1 && problem.stride_w == 1 &&
         (one_row || (problem.stride_h == 1 && whole_rows));
}

ImplicitGemmGeometry::ImplicitGemmGeometry(const ConvProblem& problem, const ImplicitGemmConfig& config,
                                           int vector_lanes)
    : lanes(vector_lanes),
      groups(problem.groups),
      group_channels(problem.c / problem.groups),
      group_filters(problem.k / problem.groups),
      taps(reads_planes(problem, config) ? problem.c * problem.r
           : config.joined != 0          ? problem.r
                                         : problem.r * problem.s),
      batch(problem.n),
      output_rows(problem.p()),
      output_cols(problem.q()) {
  constexpr std::int64_t kWord = sizeof(float);
  const std::int64_t word_channels = config.bf16 != 0 ? 2 : 1;
  const bool planes = reads_planes(problem, config);
  const std::int64_t tap_channels = planes               ? problem.s
                                    : config.joined != 0 ? problem.s * group_channels
                                                         : group_channels;
  words = ceil_div(tap_channels, word_channels);
  half = config.joined != 0 && tap_channels % word_channels != 0;
  pass_words =
      config.channels == 0 ? words : std::clamp<std::int64_t>(config.channels / word_channels, 1, words);
  passes = ceil_div(words, pass_words);

  filter_vectors = ceil_div(group_filters, lanes);
  filter_blocks = ceil_div(filter_vectors, config.vectors);
  task_filter_blocks = config.filters == 0 ? filter_blocks
                                           : std::clamp<std::int64_t>(
                                                 config.filters / (config.vectors * lanes), 1, filter_blocks);
  filter_tasks = ceil_div(filter_blocks, task_filter_blocks);

  tile_rows = std::min<std::int64_t>(config.rows, output_rows);
  tile_cols = config.cols == 0 ? output_cols : std::min<std::int64_t>(config.cols, output_cols);
  row_tiles = ceil_div(output_rows, tile_rows);
  col_tiles = ceil_div(output_cols, tile_cols);
  tasks = groups * batch * row_tiles * col_tiles * filter_tasks;

  if (config.staged != 0) {
    input_row = problem.r == 1 ? problem.stride_h : 1;
    input_col = problem.s == 1 && config.joined == 0 ? problem.stride_w : 1;
    window_rows = (tile_rows - 1) * (problem.stride_h / input_row) + (problem.r - 1) * problem.dilation_h + 1;
    window_cols = (tile_cols - 1) * (problem.stride_w / input_col) + (problem.s - 1) * problem.dilation_w + 1;
    // An odd number of cache lines a pixel keeps a tile's pixels from meeting in the same sets of the first
    // cache.
    constexpr std::int64_t kLine = 16;
    col_step = config.joined != 0 ? group_channels * kWord / word_channels
                                  : (ceil_div(pass_words, kLine) | 1) * kLine * kWord;
    row_step = window_cols * col_step;
    image_step = 0;
    pass_step = window_rows * row_step;
    // Staging writes a vector past a joined row.
    window = ceil_div(passes * pass_step, kLine * kWord) * kLine + (config.joined != 0 ? kLine : 0);
  } else {
    input_row = input_col = 1;
    window_rows = problem.h, window_cols = problem.w;
    col_step = planes ? kWord : problem.c * kWord / word_channels;
    row_step = window_cols * col_step;
    image_step = window_rows * row_step * (planes ? problem.c : 1);
    pass_step = pass_words * kWord;
    window = 0;
  }
  stride_row = problem.stride_h / input_row, stride_col = problem.stride_w / input_col;
  dilation_row = problem.dilation_h, dilation_col = problem.dilation_w;

  sums_step = config.vectors * lanes;
  // A register tile's, where they are finished before the next one's are begun.
  const bool keeps_all = passes > 1 || problem.layout == Layout::nchw;
  sums = sums_step * (keeps_all ? tile_rows * tile_cols : config.pixels);
}

GemmTile ImplicitGemmGeometry::tile(std::int64_t index) const {
  GemmTile tile{};
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

// Blocks have nearly equal widths: 7 vectors are 4 + 3, not 4 + 2 + 1.
FilterBlock ImplicitGemmGeometry::block(std::int64_t index) const {
  const std::int64_t first = filter_vectors * index / filter_blocks;
  return {first, filter_vectors * (index + 1) / filter_blocks - first};
}

}  // namespace convtune::cpu
