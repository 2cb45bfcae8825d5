// See winograd_executable.h.
#include "cpu/winograd/winograd_executable.h"

#include <algorithm>

#include "cpu/parallel.h"
#include "cpu/scratch.h"

namespace convtune::cpu {

WinogradExecutable::WinogradExecutable(const ConvProblem& problem, const WinogradConfig& config, int threads)
    : problem_(problem),
      config_(config),
      bounds_(bounds_of(problem)),
      kernels_(*direct_kernels(config.vector_bits)),
      transforms_(*winograd_kernels(config.vector_bits, config.tile)),
      tile_(*find_tile(kernels_.tiles, config.channels, config.vectors)),
      geometry_(problem, config, kernels_.lanes),
      threads_(threads) {}

std::size_t WinogradExecutable::packed_bytes() const {
  return static_cast<std::size_t>(geometry_.packed_floats) * sizeof(float);
}

void WinogradExecutable::pack(const void* w, const void* bias, void* packed, Stream) const {
  const WinogradGeometry& g = geometry_;
  const auto* weights = static_cast<const float*>(w);
  auto* out = static_cast<float*>(packed);
  std::fill_n(out, g.packed_weights, 0.0F);
  std::copy_n(weights, problem_.weight_elements(), out + g.packed_weights);
  for (std::int64_t k = 0; k < problem_.k; ++k) {
    const std::int64_t group = k / g.group_filters, in_group = k % g.group_filters;
    const std::int64_t block = in_group / g.block_filters, in_block = in_group % g.block_filters;
    for (std::int64_t c = 0; c < g.group_channels; ++c)
      transform_filter(config_.tile, weights + (k * g.group_channels + c) * kWinogradTaps * kWinogradTaps,
                       out + packed_panel(group, block, 0) + c * g.block_filters + in_block, g.packed_panel);
    if (bias) out[packed_bias(group, in_group)] = static_cast<const float*>(bias)[k];
  }
}

void WinogradExecutable::run(const Tensors& tensors, const void* packed, Stream) const {
  const auto* x = static_cast<const float*>(tensors.x);
  const auto* weights = static_cast<const float*>(packed);
  auto* y = static_cast<float*>(tensors.y);
  parallel_for(threads_, geometry_.tasks, [&](int, std::int64_t begin, std::int64_t end) {
    thread_local Scratch scratch;
    float* const memory = scratch.reserve(geometry_.scratch);
    std::int64_t transformed = -1;  // consecutive tasks share their tiles and differ in their filters
    for (std::int64_t index = begin; index < end; ++index) {
      const WinogradTask task = geometry_.task(index);
      if (const std::int64_t tiles = index / geometry_.filter_tasks; tiles != transformed) {
        transform_input(task, x, memory);
        transformed = tiles;
      }
      for (std::int64_t from = task.first_block; from < task.last_block; from += geometry_.chunk_blocks) {
        const std::int64_t to = std::min(from + geometry_.chunk_blocks, task.last_block);
        multiply(task, from, to, weights, memory);
        finish(task, from, to, x, weights, memory, y);
      }
    }
  });
}

}  // namespace convtune::cpu
