// Winograd's convolution of NCHW tensors: every stage of a task in a core's cache (winograd_geometry.h). The
// products are multiplied by the direct convolution's register tiles, vectors running over tiles of the
// output.
#include <algorithm>
#include <array>
#include <vector>

#include "cpu/algorithms/winograd/winograd_executable.h"
#include "cpu/tile/winograd/winograd_repair.h"

namespace convtune::cpu {
namespace {

class ChannelsFirst final : public WinogradExecutable {
 public:
  ChannelsFirst(const ConvProblem& problem, const WinogradConfig& config, int threads)
      : WinogradExecutable(problem, config, threads) {
    for (std::size_t width = 1; width <= static_cast<std::size_t>(config.vectors); ++width)
      for (std::int64_t c = 0; c < geometry_.group_channels; ++c)
        channel_offsets_[width - 1].push_back(
            static_cast<std::int32_t>(c * static_cast<std::int64_t>(width) * kernels_.lanes));
  }

 private:
  void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
               const Outputs<float>& outputs) const override {
    for_each_chunk(task, [&](std::int64_t from, std::int64_t end) {
      multiply(task, from, end, packed, memory);
      finish(task, from, end, x, packed, memory, outputs);
    });
  }

  // Channel 0 of product 0 of a block in V.
  float* block_of(float* memory, std::int64_t first_vector) const {
    return memory + geometry_.transformed + first_vector * kernels_.lanes * geometry_.group_channels;
  }

  // V of all channels of a task.
  void transform_input(const WinogradTask& task, const float* x, float* memory) const override {
    const WinogradGeometry& g = geometry_;
    const std::int64_t plane = problem_.h * problem_.w;
    float* const rows = memory + g.rows;
    float* const half = memory + g.half;
    for (std::int64_t c = 0; c < g.group_channels; ++c) {
      g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
        const float* image = x + (run.n * problem_.c + task.group * g.group_channels + c) * plane;
        const std::int64_t width = run.count * g.m + 2, step = problem_.dilation_w;
        const std::int64_t first_col = run.col * g.m * step + run.col_phase - problem_.pad_left;
        const std::int64_t from = std::clamp<std::int64_t>((step - 1 - first_col) / step, 0, width);
        const std::int64_t end =
            std::clamp<std::int64_t>((problem_.w - first_col + step - 1) / step, from, width);
        for (std::int64_t i = 0; i < g.inputs; ++i) {
          const std::int64_t row =
              (run.row * g.m + i) * problem_.dilation_h + run.row_phase - problem_.pad_top;
          float* const to = rows + i * g.row_pitch;
          if (row < 0 || row >= problem_.h) {
            std::fill_n(to, width, 0.0F);
            continue;
          }
          std::fill_n(to, from, 0.0F);
          const float* const columns = image + row * problem_.w + first_col;
          if (step == 1)
            std::copy_n(columns + from, end - from, to + from);
          else
            for (std::int64_t j = from; j < end; ++j) to[j] = columns[j * step];
          std::fill_n(to + end, width - end, 0.0F);
        }
        transforms_.input_rows(rows, g.row_pitch, run.count, half + run.offset, g.half_stride);
      });
      clear_junk(task, half, g.products);
      for_each_block(task, [&](std::int64_t first, std::int64_t width) {
        transforms_.input_columns(half + first * kernels_.lanes, g.half_stride, width,
                                  block_of(memory, first) + c * width * kernels_.lanes,
                                  g.group_channels * g.stride);
      });
    }
  }

  // M of the output channels of register tiles [from, end).
  void multiply(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* weights,
                float* memory) const {
    const WinogradGeometry& g = geometry_;
    for (std::int64_t product = 0; product < g.products; ++product)
      for_each_block(task, [&](std::int64_t first, std::int64_t width) {
        TileArgs args{.window = block_of(memory, first) + product * g.group_channels * g.stride,
                      .taps = channel_offsets_[static_cast<std::size_t>(width - 1)].data(),
                      .tap_count = g.group_channels,
                      .weights = nullptr,
                      .acc = nullptr,
                      .acc_stride = g.stride};
        const TileKernel kernel = tile_.kernels[static_cast<std::size_t>(width - 1)];
        for (std::int64_t block = from; block < end; ++block) {
          args.weights = weights + geometry_.packed_panel(task.group, block, product);
          args.acc = multiplied(memory, product, (block - from) * config_.channels) + first * kernels_.lanes;
          kernel(args);
        }
      });
  }
  float* multiplied(float* memory, std::int64_t product, std::int64_t channel) const {
    const WinogradGeometry& g = geometry_;
    return memory + g.multiplied + (product * g.chunk_filters + channel) * g.stride;
  }

  // Outputs of those channels from their M.
  void finish(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* x,
              const float* packed, float* memory, const Outputs<float>& outputs) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t p = problem_.p(), q = problem_.q();
    float* const sums = memory + g.sums;
    const std::int64_t first = from * config_.channels,
                       last = std::min(end * config_.channels, g.group_filters);
    for (std::int64_t in_group = first; in_group < last; ++in_group) {
      const std::int64_t k = task.group * g.group_filters + in_group;
      const bool finite =
          transforms_.output(multiplied(memory, 0, in_group - first), g.chunk_filters * g.stride,
                             vectors_of(task), sums, g.sums_stride);
      const float bias = packed[geometry_.packed_bias_of(task.group, in_group)];
      g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
        const std::int64_t step = problem_.dilation_w, col = run.col * g.m * step + run.col_phase;
        const std::int64_t count = std::min(run.count * g.m, (q - col + step - 1) / step);
        for (std::int64_t r = 0; r < g.m && count > 0; ++r) {
          const std::int64_t row = (run.row * g.m + r) * problem_.dilation_h + run.row_phase;
          if (row >= p) break;
          float* const values = sums + r * g.sums_stride + run.offset * g.m;
          if (!finite)
            for (std::int64_t i = 0; i < count; ++i)
              repair_sum(problem_, x, packed + g.packed_weights, {run.n, k, row, col + i * step}, values[i]);
          finish_row(values, bias, outputs + (((run.n * problem_.k + k) * p + row) * q + col), count);
        }
      });
    }
  }

  // A row of a plane, or with a dilation every second, third ... of its outputs.
  void finish_row(float* values, float bias, const Outputs<float>& to, std::int64_t count) const {
    const std::int64_t step = problem_.dilation_w;
    if (step == 1) return kernels_.finish(values, bias, epilogue_, to, count);
    for (std::int64_t i = 0; to.residual != nullptr && i < count; ++i) values[i] += to.residual[i * step];
    kernels_.finish(values, bias, epilogue_, {values, nullptr}, count);
    for (std::int64_t i = 0; i < count; ++i) to.y[i * step] = values[i];
  }

  std::array<std::vector<std::int32_t>, kMaxTileVectors> channel_offsets_;  // of panels of each width
};

}  // namespace

std::unique_ptr<Executable> winograd_channels_first(const ConvProblem& problem, const WinogradConfig& config,
                                                    int threads) {
  return std::make_unique<ChannelsFirst>(problem, config, threads);
}

}  // namespace convtune::cpu
