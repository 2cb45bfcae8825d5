// What winograd runs: what both layouts share, and one class for each.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/direct/direct_kernels.h"
#include "cpu/winograd/winograd_geometry.h"
#include "cpu/winograd/winograd_kernels.h"

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
  // The three stages of a task, in a thread's scratch memory: V of all its input channels, M of the output
  // channels of the register tiles [from, end), and their outputs.
  virtual void transform_input(const WinogradTask& task, const float* x, float* memory) const = 0;
  virtual void multiply(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* packed,
                        float* memory) const = 0;
  virtual void finish(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* x,
                      const float* packed, float* memory, float* y) const = 0;

  // Where pack() puts the weights of a register tile for one product, and an output channel's bias.
  std::int64_t packed_panel(std::int64_t group, std::int64_t block, std::int64_t product) const {
    return ((group * geometry_.filter_blocks + block) * geometry_.products + product) *
           geometry_.packed_panel;
  }
  std::int64_t packed_bias(std::int64_t group, std::int64_t k) const {
    return geometry_.packed_bias + group * geometry_.filter_blocks * geometry_.block_filters + k;
  }

  ConvProblem problem_;
  WinogradConfig config_;
  Bounds bounds_;
  const DirectKernels& kernels_;
  const WinogradKernels& transforms_;
  const TileShape& tile_;
  WinogradGeometry geometry_;
  int threads_;
};

std::unique_ptr<Executable> winograd_channels_first(const ConvProblem& problem, const WinogradConfig& config,
                                                    int threads);
std::unique_ptr<Executable> winograd_channels_last(const ConvProblem& problem, const WinogradConfig& config,
                                                   int threads);

}  // namespace convtune::cpu
