// The executables of winograd: their common base, a class for each layout, and one for filters that are cut
// into parts.
#pragma once

#include <algorithm>
#include <memory>

#include "contract/backend.h"
#include "cpu/algorithms/winograd/winograd_geometry.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/winograd/winograd_kernels.h"

namespace convtune::cpu {

// The config must be one that winograd_accepts() takes.
class WinogradExecutable : public Executable {
 public:
  WinogradExecutable(const ConvProblem& problem, const WinogradConfig& config, int threads);

  std::size_t packed_bytes() const override;
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override;
  void run(const Tensors& tensors, const void* packed, Stream stream) const override;
  bool exact_on_integers() const override { return config_.tile == 2; }

 protected:
  // The stages of a task, in a thread's scratch memory: V of all its input channels; then, a chunk of output
  // channels at a time, M and their outputs.
  virtual void transform_input(const WinogradTask& task, const float* x, float* memory) const = 0;
  virtual void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
                       const Outputs<float>& outputs) const = 0;
  // Before a thread's first task and behind its last one.
  virtual void begin(float* /*memory*/) const {}
  virtual void end(float* /*memory*/) const {}

  // A task's chunks, as f(first register tile, end).
  template <class Visit>
  void for_each_chunk(const WinogradTask& task, Visit&& visit) const {
    for (std::int64_t from = task.first_block; from < task.last_block; from += geometry_.chunk_blocks)
      visit(from, std::min(from + geometry_.chunk_blocks, task.last_block));
  }

  // Channels first, where vectors run over tiles.
  std::int64_t vectors_of(const WinogradTask& task) const { return (task.tiles - 1) / kernels_.lanes + 1; }
  // A task's vectors in blocks of nearly equal width, as f(first vector, width): 7 are 4 + 3, not 4 + 2 + 1.
  template <class Visit>
  void for_each_block(const WinogradTask& task, Visit&& visit) const {
    const std::int64_t blocks = (vectors_of(task) - 1) / config_.vectors + 1;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t from = vectors_of(task) * b / blocks;
      visit(from, vectors_of(task) * (b + 1) / blocks - from);
    }
  }
  // Nothing that is left of another task may look like a number that is not finite.
  void clear_junk(const WinogradTask& task, float* half, std::int64_t half_rows) const;

  ConvProblem problem_;
  WinogradConfig config_;
  Epilogue epilogue_;
  const DirectKernels& kernels_;
  const WinogradKernels& transforms_;
  const TileShape& tile_;
  WinogradGeometry geometry_;
  int threads_;
};

std::unique_ptr<Executable> winograd_channels_first(const ConvProblem& problem, const WinogradConfig& config,
                                                    int threads);
// With a depth: of problems for which winograd_reads_frames().
bool winograd_reads_frames(const ConvProblem& volume);
std::unique_ptr<Executable> winograd_frames(const ConvProblem& volume, const WinogradConfig& config,
                                            int threads);
std::unique_ptr<Executable> winograd_decomposed(const ConvProblem& problem, const WinogradConfig& config,
                                                int threads);
std::unique_ptr<Executable> winograd_channels_last(const ConvProblem& problem, const WinogradConfig& config,
                                                   int threads);

}  // namespace convtune::cpu
