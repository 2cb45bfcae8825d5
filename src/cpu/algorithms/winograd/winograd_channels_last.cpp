// Winograd's convolution of NHWC tensors: as winograd_channels_first.cpp, but vectors run over channels. So
// tiles are what a register tile of the direct convolution takes for its output channels, and transformed
// weights are what it takes for its window.
#include <algorithm>
#include <array>
#include <vector>

#include "cpu/algorithms/winograd/winograd_executable.h"
#include "cpu/tile/winograd/winograd_repair.h"

namespace convtune::cpu {
namespace {

class ChannelsLast final : public WinogradExecutable {
 public:
  ChannelsLast(const ConvProblem& problem, const WinogradConfig& config, int threads)
      : WinogradExecutable(problem, config, threads) {
    for (std::int64_t c = 0; c < geometry_.group_channels; ++c)
      channel_offsets_.push_back(static_cast<std::int32_t>(c * geometry_.block_filters));
  }

 private:
  // Channel 0 of the first product of four tiles in V.
  float* tiles_of(float* memory, std::int64_t first_tile) const {
    return memory + geometry_.transformed + first_tile * geometry_.channel_rows;
  }
  float* multiplied(float* memory, std::int64_t product, std::int64_t tile) const {
    return memory + geometry_.multiplied + (product * geometry_.stride + tile) * geometry_.chunk_filters;
  }

  void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
               const Outputs<float>& outputs) const override {
    for_each_chunk(task, [&](std::int64_t from, std::int64_t end) {
      multiply(task, from, end, packed, memory);
      finish(task, from, end, x, packed, memory, outputs);
    });
  }

  // V of all channels of a task. Tiles that fill up the last four read zeros.
  void transform_input(const WinogradTask& task, const float* x, float* memory) const override {
    const WinogradGeometry& g = geometry_;
    float* const zeros = memory + g.rows;
    std::fill_n(zeros, g.channel_rows, 0.0F);
    std::array<const float*, kTilesOfPixels * kMostProducts> pixels{};
    std::int64_t waiting = 0, done = 0;
    const auto transform = [&] {
      transforms_.input_pixels(pixels.data(), g.group_channels, tiles_of(memory, done),
                               g.channel_rows * g.stride);
      done += kTilesOfPixels, waiting = 0;
    };
    g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
      const float* image = x + run.n * problem_.h * problem_.w * problem_.c + task.group * g.group_channels;
      for (std::int64_t tile = 0; tile < run.count; ++tile) {
        const float** to = pixels.data() + waiting * g.products;
        for (std::int64_t i = 0; i < g.inputs; ++i)
          for (std::int64_t j = 0; j < g.inputs; ++j) {
            const std::int64_t row = run.row * g.m + i - problem_.pad_top;
            const std::int64_t col = (run.col + tile) * g.m + j - problem_.pad_left;
            const bool inside = row >= 0 && row < problem_.h && col >= 0 && col < problem_.w;
            *to++ = inside ? image + (row * problem_.w + col) * problem_.c : zeros;
          }
        if (++waiting == kTilesOfPixels) transform();
      }
    });
    if (waiting == 0) return;
    std::fill_n(pixels.data() + waiting * g.products, (kTilesOfPixels - waiting) * g.products, zeros);
    transform();
  }

  // M of the output channels of register tiles [from, end).
  void multiply(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* weights,
                float* memory) const {
    const WinogradGeometry& g = geometry_;
    for (std::int64_t product = 0; product < g.products; ++product)
      for (std::int64_t block = from; block < end; ++block) {
        TileArgs args{.window = weights + geometry_.packed_panel(task.group, block, product),
                      .taps = channel_offsets_.data(),
                      .tap_count = g.group_channels,
                      .weights = nullptr,
                      .acc = nullptr,
                      .acc_stride = g.chunk_filters};
        const TileKernel kernel = tile_.kernels[static_cast<std::size_t>(vectors_of(block) - 1)];
        for (std::int64_t tile = 0; tile < task.tiles; tile += kTilesOfPixels) {
          args.weights = tiles_of(memory, tile) + product * g.channel_rows * g.stride;
          args.acc = multiplied(memory, product, tile) + (block - from) * g.block_filters;
          kernel(args);
        }
      }
  }
  // The vectors of a register tile that have output channels: the group's last may have fewer.
  std::int64_t vectors_of(std::int64_t block) const {
    const std::int64_t filters =
        std::min(geometry_.block_filters, geometry_.group_filters - block * geometry_.block_filters);
    return (filters - 1) / kernels_.lanes + 1;
  }

  // Outputs of those channels from their M.
  void finish(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* x,
              const float* packed, float* memory, const Outputs<float>& outputs) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t p = problem_.p(), q = problem_.q();
    const std::int64_t first = from * g.block_filters;
    const std::int64_t count = std::min(end * g.block_filters, g.group_filters) - first;
    const std::int64_t vectors = (count - 1) / kernels_.lanes + 1;
    const std::int64_t k = task.group * g.group_filters + first;
    const float* const bias = packed + geometry_.packed_bias_of(task.group, first);
    g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
      for (std::int64_t tile = 0; tile < run.count; ++tile) {
        const bool finite =
            transforms_.output_pixels(multiplied(memory, 0, run.offset + tile), g.stride * g.chunk_filters,
                                      vectors, memory + g.sums, g.sums_stride);
        for (std::int64_t r = 0; r < g.m; ++r)
          for (std::int64_t s = 0; s < g.m; ++s) {
            const std::int64_t row = run.row * g.m + r, col = (run.col + tile) * g.m + s;
            if (row >= p || col >= q) continue;
            float* const values = memory + g.sums + (r * g.m + s) * g.sums_stride;
            if (!finite)
              for (std::int64_t i = 0; i < count; ++i)
                repair_sum(problem_, x, packed + g.packed_weights, {run.n, k + i, row, col}, values[i]);
            transforms_.finish_pixel(values, bias, epilogue_,
                                     outputs + (((run.n * p + row) * q + col) * problem_.k + k), count);
          }
      }
    });
  }

  static constexpr std::size_t kMostProducts = 36;

  std::vector<std::int32_t> channel_offsets_;  // channels' offsets in a panel of weights
};

}  // namespace

std::unique_ptr<Executable> winograd_channels_last(const ConvProblem& problem, const WinogradConfig& config,
                                                   int threads) {
  return std::make_unique<ChannelsLast>(problem, config, threads);
}

}  // namespace convtune::cpu
