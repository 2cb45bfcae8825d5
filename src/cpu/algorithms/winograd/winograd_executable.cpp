// See winograd_executable.h.
#include "cpu/algorithms/winograd/winograd_executable.h"

#include <algorithm>

#include "cpu/base/parallel.h"
#include "cpu/tile/memory_plan.h"

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
  geometry_.pack(problem_, static_cast<const float*>(w), static_cast<const float*>(bias),
                 static_cast<float*>(packed));
}

void WinogradExecutable::run(const Tensors& tensors, const void* packed, Stream) const {
  const auto* x = static_cast<const float*>(tensors.x);
  const auto* weights = static_cast<const float*>(packed);
  const Outputs<float> outputs = outputs_of<float>(problem_, tensors);
  parallel_tasks(threads_, geometry_.tasks, [&](TaskQueue& tasks) {
    thread_local Scratch scratch;
    float* const memory = scratch.reserve(geometry_.memory);
    begin(memory);
    std::int64_t transformed = -1;  // consecutive tasks share their tiles and differ in their filters
    for (std::int64_t index = 0; tasks.next(index);) {
      const WinogradTask task = geometry_.task(index);
      if (const std::int64_t tiles = index / geometry_.filter_tasks; tiles != transformed) {
        transform_input(task, x, memory);
        transformed = tiles;
      }
      compute(task, x, weights, memory, outputs);
    }
    end(memory);
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
