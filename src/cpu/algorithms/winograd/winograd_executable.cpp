// See winograd_executable.h.
#include "cpu/algorithms/winograd/winograd_executable.h"

#include <algorithm>

#include "cpu/base/parallel.h"
#include "cpu/tile/scratch.h"

namespace convtune::cpu {

WinogradExecutable::WinogradExecutable(const ConvProblem& problem, const WinogradConfig& config, int threads)
    : problem_(problem),
      config_(config),
      epilogue_(epilogue_of(problem)),
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
      for (const WinogradPartProduct& row : g.rows_axis.products)
        for (const WinogradPartProduct& col : g.cols_axis.products) {
          const WinogradPart &rows = g.rows_axis.parts[row.part], &cols = g.cols_axis.parts[col.part];
          const float* const filter = weights + (k * g.group_channels + c) * problem_.r * problem_.s;
          out[packed_panel(group, block, row.product * g.inputs + col.product) +
              (g.part_channel(row, col) + c) * g.block_filters + in_block] =
              transformed_weight({.w = filter + rows.first * problem_.s + cols.first,
                                  .m = config_.tile,
                                  .row_taps = rows.taps,
                                  .col_taps = cols.taps,
                                  .row_step = problem_.stride_h * problem_.s,
                                  .col_step = problem_.stride_w},
                                 row.product, col.product);
        }
    if (bias) out[packed_bias(group, in_group)] = static_cast<const float*>(bias)[k];
  }
}

void WinogradExecutable::run(const Tensors& tensors, const void* packed, Stream) const {
  const auto* x = static_cast<const float*>(tensors.x);
  const auto* weights = static_cast<const float*>(packed);
  const Outputs<float> outputs = outputs_of<float>(problem_, tensors);
  parallel_tasks(threads_, geometry_.tasks, [&](TaskQueue& tasks) {
    thread_local Scratch scratch;
    float* const memory = scratch.reserve(geometry_.scratch);
    std::int64_t transformed = -1;  // consecutive tasks share their tiles and differ in their filters
    for (std::int64_t index = 0; tasks.next(index);) {
      const WinogradTask task = geometry_.task(index);
      if (const std::int64_t tiles = index / geometry_.filter_tasks; tiles != transformed) {
        transform_input(task, x, memory);
        transformed = tiles;
      }
      compute(task, x, weights, memory, outputs);
    }
    if (config_.stream) kernels_.fence();
  });
}

void WinogradExecutable::clear_junk(const WinogradTask& task, float* half, std::int64_t half_rows) const {
  const std::int64_t junk = vectors_of(task) * kernels_.lanes - task.tiles;
  if (junk > 0)
    for (std::int64_t row = 0; row < half_rows; ++row)
      std::fill_n(half + row * geometry_.half_stride + task.tiles, junk, 0.0F);
}

}  // namespace convtune::cpu
