// See implicit_gemm_geometry.h.
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"

namespace convtune::cpu {

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
    : OutputTiles(problem, config.rows, config.cols),
      FilterBlocks(problem, vector_lanes, config.vectors, config.filters),
      lanes(vector_lanes),
      group_channels(problem.c / problem.groups),
      tasks(tiles() * filter_tasks),
      taps(reads_planes(problem, config) ? problem.c * problem.r
           : config.joined != 0          ? problem.r
                                         : problem.r * problem.s) {
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

  if (config.staged != 0) {
    input_row = problem.r == 1 ? problem.stride_h : 1;
    input_col = problem.s == 1 && config.joined == 0 ? problem.stride_w : 1;
    window_rows = (tile_rows - 1) * (problem.stride_h / input_row) + (problem.r - 1) * problem.dilation_h + 1;
    window_cols = (tile_cols - 1) * (problem.stride_w / input_col) + (problem.s - 1) * problem.dilation_w + 1;
    // An odd number of cache lines a pixel keeps a tile's pixels from meeting in the same sets of the first
    // cache.
    constexpr std::int64_t kLine = 16;
    col_step = config.joined != 0 ? product_of(group_channels, kWord) / word_channels
                                  : product_of(ceil_div(pass_words, kLine) | 1, kLine * kWord);
    row_step = product_of(window_cols, col_step);
    image_step = 0;
    pass_step = product_of(window_rows, row_step);
    // Staging writes a vector past a joined row.
    window_floats =
        ceil_div(product_of(passes, pass_step), kLine * kWord) * kLine + (config.joined != 0 ? kLine : 0);
  } else {
    input_row = input_col = 1;
    window_rows = problem.h, window_cols = problem.w;
    col_step = planes ? kWord : product_of(problem.c, kWord) / word_channels;
    row_step = product_of(window_cols, col_step);
    image_step = product_of(window_rows, row_step, planes ? problem.c : 1);
    pass_step = product_of(pass_words, kWord);
    window_floats = 0;
  }
  stride_row = problem.stride_h / input_row, stride_col = problem.stride_w / input_col;
  dilation_row = problem.dilation_h, dilation_col = problem.dilation_w;

  sums_step = config.vectors * lanes;
  // A register tile's, where they are finished before the next one's are begun.
  const bool keeps_all = passes > 1 || problem.layout == Layout::nchw;
  const std::int64_t pixels = tile_rows * tile_cols;
  window = memory.take("window", window_floats);
  sums = memory.take("sums", product_of(sums_step, keeps_all ? pixels : config.pixels));
  inputs = memory.take("places of pixels in the window", pixels, sizeof(std::int64_t));
  outputs = memory.take("places of pixels in y", pixels, sizeof(std::int64_t));
}

}  // namespace convtune::cpu
