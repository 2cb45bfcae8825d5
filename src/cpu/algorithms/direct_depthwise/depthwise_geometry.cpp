// See depthwise_geometry.h.
#include "cpu/algorithms/direct_depthwise/depthwise_geometry.h"

#include <algorithm>

#include "cpu/tile/line_buffer.h"

namespace convtune::cpu {
namespace {

// Rows of a plane that pass through memory of the thread's on their way past the caches, and stay in the
// first cache on it; 0: none does.
std::int64_t buffered_rows_of(const ConvProblem& problem, const DepthwiseConfig& config) {
  constexpr std::int64_t kMostBytes = 16 << 10;
  if (problem.layout == Layout::nhwc || config.stream == 0 || config.cols != 0) return 0;
  return std::min(kMostBytes / product_of(problem.q(), size_of(problem.dtype.y)), problem.p());
}

// Threads copy the weights for vectors that begin with the lines of x and y, which so many outputs are worth.
std::int64_t lined_floats_of(const ConvProblem& problem, const DepthwiseConfig& config) {
  constexpr std::int64_t kOutputsAWeight = 64;
  const std::int64_t line = kCacheLineBytes / size_of(problem.dtype.y);
  if (problem.layout != Layout::nhwc || config.vector_bits != 512 || problem.k % line != 0) return 0;
  if (problem.stride_w != 1 || problem.residual) return 0;
  const std::int64_t weights = problem.weight_elements();
  if (product_of(weights, kOutputsAWeight) > problem.output_elements()) return 0;
  return weights + problem.k + kLinedFloats;
}

}  // namespace

MemoryPlan depthwise_memory(const ConvProblem& problem, const DepthwiseConfig& config) {
  MemoryPlan memory;
  const std::int64_t pixels = std::min<std::int64_t>(config.tile, problem.q()),
                     bytes = size_of(problem.dtype.y),
                     more = LineBuffer<float>::kMoreLines * kCacheLineBytes / bytes;
  const std::int64_t buffered =
      problem.layout == Layout::nhwc && config.stream != 0 ? product_of(pixels, problem.k) + more : 0;
  memory.take("lines", std::max(product_of(buffered, bytes), 4 * lined_floats_of(problem, config)), 1);
  if (const std::int64_t rows = buffered_rows_of(problem, config); rows > 0)
    memory.take("lines", rows * problem.q() + more, bytes);
  return memory;
}

DepthwiseGeometry::DepthwiseGeometry(const ConvProblem& problem, const DepthwiseConfig& config)
    : channels_last(problem.layout == Layout::nhwc),
      lanes(config.vector_bits / 32),
      parts(4 / size_of(problem.dtype.x)),
      step(lanes * parts),
      group_channels(problem.c / problem.groups),
      words(group_channels > 1 ? group_channels / parts : 1),
      vectors((problem.k - 1) / step + 1),
      filters(problem.k),
      output_frames(problem.z()),
      output_rows(problem.p()),
      output_cols(problem.q()),
      filter_cols(problem.s),
      frame_taps(problem.r * problem.s),
      taps(problem.t * frame_taps),
      task_rows(config.rows == 0 ? output_rows : std::min<std::int64_t>(config.rows, output_rows)),
      row_tasks((output_rows - 1) / task_rows + 1),
      task_cols(config.cols == 0 ? output_cols : std::min<std::int64_t>(config.cols, output_cols)),
      col_tasks((output_cols - 1) / task_cols + 1),
      buffered_rows(buffered_rows_of(problem, config)),
      tasks(problem.n * (channels_last ? 1 : problem.k) * output_frames * row_tasks * col_tasks),
      lined_floats(lined_floats_of(problem, config)),
      packed_bias(channels_last ? vectors * step * words * taps : filters * taps),
      packed_flag(packed_bias + (channels_last ? vectors * step : filters)),
      memory(depthwise_memory(problem, config)) {}

}  // namespace convtune::cpu
