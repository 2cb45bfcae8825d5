// See wgrad_geometry.h.
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_geometry.h"

#include <algorithm>

#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.h"

namespace convtune::cpu {

bool is_depthwise(const ConvProblem& problem) {
  return problem.groups > 1 && problem.groups == problem.c && problem.groups == problem.k;
}

WgradGeometry::WgradGeometry(const ConvProblem& problem, const WgradConfig& config, int lanes,
                             int tile_rows) {
  depthwise = is_depthwise(problem);
  groups = depthwise ? 1 : problem.groups;
  channels = problem.c / groups, filters = problem.k / groups;
  taps = product_of(problem.t, problem.r, problem.s);
  const std::int64_t vector_block = config.vectors * lanes;
  x_block = depthwise || config.words == 0 ? vector_block : tile_rows;
  dy_block = depthwise || config.words == 1 ? vector_block : tile_rows;
  const std::int64_t wanted = config.filters == 0 ? filters : std::min<std::int64_t>(config.filters, filters);
  task_filters = round_up(wanted, dy_block);
  filter_tasks = ceil_div(filters, task_filters);
  dy_blocks = ceil_div(std::min(task_filters, filters), dy_block);
  x_blocks = depthwise ? dy_blocks : ceil_div(channels, x_block);
  rows = std::min<std::int64_t>(config.rows, problem.p());
  row_chunks = ceil_div(problem.p(), rows);
  chunks = product_of(problem.n, problem.z(), row_chunks);
  splits = config.splits;
  tasks = product_of(splits, groups, filter_tasks);
  window_rows = std::min(
      problem.h, product_of(rows - 1, problem.stride_h) + product_of(problem.r - 1, problem.dilation_h) + 1);
  x_pixels = product_of(problem.t, window_rows, problem.w);
  dy_pixels = product_of(rows, problem.q());
  tile = depthwise ? x_block : x_block * dy_block;
  tiles = depthwise ? product_of(x_blocks, taps) : product_of(x_blocks, dy_blocks, taps);

  constexpr std::int64_t kRoom = 16;  // words that a whole vector writes behind the last pixel
  x_panel = memory.take("panel of x", product_of(x_blocks, x_pixels, x_block) + kRoom);
  dy_panel = memory.take("panel of dy", product_of(dy_blocks, dy_pixels, dy_block) + kRoom);
  sums = memory.take("sums", product_of(tiles, tile));
  bias = memory.take("sums of the bias", task_filters);
  runs = memory.take("runs of pixels", product_of(taps, rows), sizeof(WgradRun));
}

}  // namespace convtune::cpu
