// winograd_filters: Winograd's convolution with vectors over output channels, for images of few tiles
// (winograd_filters_geometry.h). What is worth trying is winograd_filters_candidates.cpp's.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_candidates.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"
#include "cpu/base/parallel.h"
#include "cpu/launch/cpu_algorithm.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/tensor_kernels.h"
#include "cpu/tile/tile_epilogue.h"
#include "cpu/tile/winograd/winograd_repair.h"
#include "cpu/tile/winograd/winograd_strip.h"
#include "cpu/tile/winograd/winograd_transform.h"
#include "problem/config_fields.h"

namespace convtune::cpu {
namespace {

class WinogradFiltersExecutable final : public Executable {
 public:
  WinogradFiltersExecutable(const ConvProblem& problem, const WinogradFiltersConfig& config, int threads)
      : problem_(problem),
        config_(config),
        lanes_(direct_kernels(config.vector_bits)->lanes),
        geometry_(problem, config, lanes_),
        kernels_(*winograd_filters_kernels(config.vector_bits)),
        multiply_(
            winograd_filters_multiply(config.vector_bits, config.block, geometry_.block_filters / lanes_)),
        finish_(
            tensor_kernels(config.vector_bits)->finish_planes[static_cast<std::size_t>(problem.activation)]),
        strips_(problem, config.vector_bits, lanes_),
        p_(problem.p()),
        q_(problem.q()),
        threads_(threads) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(geometry_.packed_floats) * sizeof(float);
  }

  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    geometry_.pack(problem_, static_cast<const float*>(w), static_cast<const float*>(bias),
                   static_cast<float*>(packed));
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const auto* x = static_cast<const float*>(tensors.x);
    const auto* weights = static_cast<const float*>(packed);
    const Outputs<float> outputs = outputs_of<float>(problem_, tensors);
    const WinogradFiltersGeometry& g = geometry_;
    parallel_tasks(threads_, g.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(g.memory);
      std::int64_t transformed = -1;  // consecutive tasks share their tiles and differ in their filters
      for (std::int64_t index = 0; tasks.next(index);) {
        const WinogradTask task = g.task(index);
        if (const std::int64_t tiles = index / g.filter_tasks; tiles != transformed) {
          transform_input(task, x, memory);
          transformed = tiles;
        }
        compute(task, x, weights, memory, outputs);
      }
    });
  }

 private:
  // V of a task.
  void transform_input(const WinogradTask& task, const float* x, float* memory) const {
    const WinogradFiltersGeometry& g = geometry_;
    std::array<WinogradStrip::Piece, kMostPieces> pieces{};
    g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
      for (std::int64_t at = run.offset, next; at < run.offset + run.count; at = next) {
        next = strip_end(at, run.offset + run.count);
        std::size_t count = 0;
        for (std::int64_t block = at / config_.block; block * config_.block < next; ++block) {
          const std::int64_t first = std::max(block * config_.block, at);
          pieces[count++] = {memory + g.transformed + block * g.block_step - block * config_.block + at,
                             g.pitch, first - at, std::min((block + 1) * config_.block, next) - at};
        }
        strips_.transform(
            {run.n, run.row, run.col + at - run.offset, task.group * g.group_channels, g.group_channels},
            std::span(pieces).first(count), g.places.data(), x, memory + g.copied);
      }
    });
  }

  // The end of a strip from tile `at` on: the end of a block, unless its row ends, or one block is longer.
  std::int64_t strip_end(std::int64_t at, std::int64_t run_end) const {
    const std::int64_t end = at + lanes_;
    if (end >= run_end) return run_end;
    const std::int64_t whole = end / config_.block * config_.block;
    return whole > at ? whole : end;
  }

  // The weights that come next are fetched from afar by the first register tiles of tiles, a line a channel
  // each.
  void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
               const Outputs<float>& outputs) const {
    const WinogradFiltersGeometry& g = geometry_;
    constexpr std::int64_t kLine = 16;
    const std::int64_t blocks = (task.tiles - 1) / config_.block + 1, lines = g.block_filters / kLine;
    for (std::int64_t block = task.first_block; block < task.last_block; ++block) {
      for (std::size_t product = 0; product < g.depth.size(); ++product) {
        const std::int64_t channels = g.depth[product];
        const float* const w = packed + g.packed_panel(task.group, block, static_cast<std::int64_t>(product));
        for (std::int64_t tiles = 0; tiles < blocks; ++tiles) {
          const float* const v = memory + g.transformed + tiles * g.block_step + g.panels[product];
          multiply_({.w = w,
                     .v = v,
                     .pitch = g.pitch,
                     .channels = channels,
                     .sums = memory + g.multiplied + static_cast<std::int64_t>(product) * g.product_step +
                             tiles * config_.block * g.block_filters,
                     .sums_step = g.block_filters,
                     .next_w = w + (tiles < lines ? channels * (g.block_filters + tiles * kLine) : 0),
                     .next_v = tiles + 1 < blocks ? v + g.block_step
                                                  : memory + g.transformed + g.panels[product + 1]});
        }
      }
      finish(task, block, x, packed, memory, outputs);
    }
  }

  // The outputs of a register tile of filters.
  void finish(const WinogradTask& task, std::int64_t block, const float* x, const float* packed,
              float* memory, const Outputs<float>& outputs) const {
    const WinogradFiltersGeometry& g = geometry_;
    const std::int64_t first = block * g.block_filters,
                       filters = std::min(g.block_filters, g.group_filters - first);
    const std::int64_t k = task.group * g.group_filters + first;
    float* const sums = memory + g.sums;
    const std::int64_t row_step = 2 * g.kRunTiles * g.block_filters;
    g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
      for (std::int64_t at = 0; at < run.count; at += g.kRunTiles) {
        const std::int64_t tiles = std::min(run.count - at, g.kRunTiles), col = 2 * (run.col + at);
        const bool finite = kernels_.output(memory + g.multiplied + (run.offset + at) * g.block_filters,
                                            g.product_step, tiles, g.block_filters / lanes_, sums, row_step);
        for (std::int64_t r = 0; r < 2 && 2 * run.row + r < p_; ++r) {
          const std::int64_t row = 2 * run.row + r, pixels = std::min(2 * tiles, q_ - col);
          float* const values = sums + r * row_step;
          if (!finite)
            for (std::int64_t j = 0; j < pixels; ++j)
              for (std::int64_t i = 0; i < filters; ++i)
                repair_sum(problem_, x, packed + g.packed_weights, {run.n, k + i, row, col + j},
                           values[j * g.block_filters + i]);
          finish_({.sums = values,
                   .sums_step = g.block_filters,
                   .pixels = pixels,
                   .channels = filters,
                   .bias = packed + g.packed_bias_of(task.group, first),
                   .residual = outputs.residual,
                   .y = outputs.y,
                   .places = nullptr,
                   .place = ((run.n * problem_.k + k) * p_ + row) * q_ + col,
                   .plane = p_ * q_,
                   .problem = &problem_});
        }
      }
    });
  }

  ConvProblem problem_;
  WinogradFiltersConfig config_;
  int lanes_;
  WinogradFiltersGeometry geometry_;
  const WinogradFiltersKernels& kernels_;
  WinogradFiltersMultiply multiply_;
  Finish finish_;
  WinogradStrips strips_;
  std::int64_t p_, q_;  // the problem's, which are divisions
  int threads_;
};

}  // namespace

const Algorithm& winograd_filters() {
  return once([] {
    return CpuAlgorithmOf<WinogradFiltersConfig>({
        .name = "winograd_filters",
        .supports = winograd_filters_supports,
        .memory =
            [](const ConvProblem& problem, const WinogradFiltersConfig& config) {
              return WinogradFiltersGeometry(problem, config, config.vector_bits / 32).memory;
            },
        .smallest = winograd_filters_smallest,
        .accepts = winograd_filters_accepts,
        .candidates = winograd_filters_candidates,
        .cycles = winograd_filters_cycles,
        .executable = [](const ConvProblem& problem, const DeviceInfo& device,
                         const WinogradFiltersConfig& config) -> std::unique_ptr<Executable> {
          return std::make_unique<WinogradFiltersExecutable>(problem, config, device.units);
        },
        .multiply_adds =
            [](const ConvProblem& problem, const WinogradFiltersConfig& config) {
              return WinogradFiltersGeometry(problem, config, direct_kernels(config.vector_bits)->lanes)
                  .issued_multiply_adds;
            },
    });
  });
}

}  // namespace convtune::cpu
