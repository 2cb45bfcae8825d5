// Winograd's convolution with filters of any size and stride, of NCHW tensors: the parts of a filter
// (winograd_parts.h) are more channels of the products that they have.
//
//   rows -> B of each part down them -> their phases of two strides -> B of each part along them = V
//
// A block of vectors of tiles has all of its products made by a register tile one after the other, and its
// outputs at once, while both are in the first cache: products are sums over few channels here, and what
// stands between them would take the time.
#include <algorithm>
#include <span>
#include <vector>

#include "cpu/winograd/winograd_executable.h"
#include "cpu/winograd/winograd_repair.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kLead = 16;  // floats: the widest vector

class Decomposed final : public WinogradExecutable {
 public:
  Decomposed(const ConvProblem& problem, const WinogradConfig& config, int threads)
      : WinogradExecutable(problem, config, threads) {
    for (int width = 1; width <= config.vectors; ++width)
      multiply_.push_back(winograd_multiply(config.vector_bits, config.channels, width));
    list_steps();
  }

 private:
  // Down the rows of a window, in the image or copied; along their products, from their phases into V.
  void list_steps() {
    const WinogradGeometry& g = geometry_;
    const std::int64_t phases = g.m * problem_.stride_w;
    auto row = g.rows_axis.products.begin();
    for (const WinogradPart& part : g.rows_axis.parts) {
      WinogradPartStep step{part.taps, {}, {}};
      for (int l = 0; l <= part.taps; ++l) {
        step.from[static_cast<std::size_t>(l)] = part.first + l * problem_.stride_h;
        step.to[static_cast<std::size_t>(l)] = row + l - g.rows_axis.products.begin();
      }
      row += part.taps + 1;
      for (std::int64_t& at : step.from) at *= problem_.w;
      image_steps_.push_back(step);
      for (std::int64_t& at : step.from) at = at / problem_.w * g.strip_pitch;
      window_steps_.push_back(step);
    }
    for (std::int64_t i = 0; i < std::ssize(g.rows_axis.products); ++i) {
      const WinogradPartProduct& down = g.rows_axis.products[static_cast<std::size_t>(i)];
      auto along = g.cols_axis.products.begin();
      for (const WinogradPart& part : g.cols_axis.parts) {
        WinogradPartStep step{part.taps, {}, {}};
        for (int l = 0; l <= part.taps; ++l, ++along) {
          const std::int64_t col = part.first + l * problem_.stride_w;
          const auto product = static_cast<std::size_t>(down.product * g.inputs + along->product);
          step.from[static_cast<std::size_t>(l)] = (i * phases + col % phases) * g.row_pitch + col / phases;
          step.to[static_cast<std::size_t>(l)] = g.first_channel[product] + g.part_channel(down, *along);
        }
        along_steps_.push_back(step);
      }
    }
  }

  // The products of a block of vectors stay in the first cache: M has [product][output channel of a
  // chunk][tile of the block].
  void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
               float* y) const override {
    const WinogradGeometry& g = geometry_;
    std::vector<WinogradPiece> pieces;
    for_each_block(task, [&](std::int64_t first, std::int64_t width) {
      pieces.clear();
      const std::int64_t first_tile = first * kernels_.lanes,
                         tiles = std::min(task.tiles - first_tile, width * kernels_.lanes);
      g.for_each_run(task.first_tile + first_tile, tiles,
                     [&](const WinogradRun& run) { add_pieces(run, pieces); });
      for_each_chunk(task, [&](std::int64_t from, std::int64_t end) {
        multiply_block(task, from, end, first, width, packed, memory);
        finish_block(task, from, end, width, pieces, x, packed, memory, y);
      });
    });
  }

  // A run within a block: its offset is seen from the block's first tile.
  void add_pieces(const WinogradRun& run, std::vector<WinogradPiece>& pieces) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t p = problem_.p(), q = problem_.q();
    const std::int64_t lanes = g.m * kernels_.lanes, from = run.offset * g.m;
    const std::int64_t end = from + std::min(run.count * g.m, q - run.col * g.m);
    for (std::int64_t vector = from / lanes; vector * lanes < end; ++vector)
      pieces.push_back(
          {.vector = vector,
           .offset = (run.n * problem_.k * p + run.row * g.m) * q + run.col * g.m - from + vector * lanes,
           .from = std::max<std::int64_t>(from - vector * lanes, 0),
           .end = std::min(end - vector * lanes, lanes),
           .rows = std::min(g.m, p - run.row * g.m)});
  }

  // V is [block][product][part of a channel][tile of the block].
  float* block_of(float* memory, std::int64_t first) const {
    return memory + geometry_.transformed + first * geometry_.first_channel.back() * kernels_.lanes;
  }

  std::int64_t product_step(std::int64_t width) const {
    return geometry_.chunk_filters * width * kernels_.lanes;
  }

  void multiply_block(const WinogradTask& task, std::int64_t from, std::int64_t end, std::int64_t first,
                      std::int64_t width, const float* packed, float* memory) const {
    const WinogradGeometry& g = geometry_;
    const WinogradMultiply multiply = multiply_[static_cast<std::size_t>(width - 1)];
    const std::int64_t lanes = width * kernels_.lanes;
    for (std::int64_t product = 0; product < g.products; product += g.together)
      for (std::int64_t block = from; block < end; ++block)
        multiply({.x = block_of(memory, first) + g.first_channel[static_cast<std::size_t>(product)] * lanes,
                  .w = packed + packed_panel(task.group, block, product),
                  .depth = g.depth.data() + product,
                  .products = g.together,
                  .sums = memory + g.multiplied + product * product_step(width) +
                          (block - from) * config_.channels * lanes,
                  .product_step = product_step(width),
                  .row_step = lanes});
  }

  void finish_block(const WinogradTask& task, std::int64_t from, std::int64_t end, std::int64_t width,
                    std::span<const WinogradPiece> pieces, const float* x, const float* packed, float* memory,
                    float* y) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t p = problem_.p(), q = problem_.q();
    const std::int64_t first = from * config_.channels,
                       last = std::min(end * config_.channels, g.group_filters);
    const float* sums = memory + g.multiplied;
    for (std::int64_t in_group = first; in_group < last; ++in_group) {
      const std::int64_t k = task.group * g.group_filters + in_group;
      const float bias = packed[packed_bias(task.group, in_group)];
      const bool finite = transforms_.output_pieces(sums, product_step(width), pieces, bias, bounds_,
                                                    y + k * p * q, q, config_.stream != 0);
      if (!finite) repair(pieces, k, sums, width, x, packed, memory, y);
      sums += width * kernels_.lanes;
    }
  }

  // The same with every sum looked at.
  void repair(std::span<const WinogradPiece> pieces, std::int64_t k, const float* from, std::int64_t width,
              const float* x, const float* packed, float* memory, float* y) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t p = problem_.p(), q = problem_.q();
    float* const sums = memory + g.sums;
    transforms_.output(from, product_step(width), width, sums, g.sums_stride);
    for (const WinogradPiece& piece : pieces)
      for (std::int64_t r = 0; r < piece.rows; ++r) {
        const std::int64_t first = piece.offset + piece.from, in_image = first % (problem_.k * p * q);
        const OutputPlace place{first / (problem_.k * p * q), k, in_image / q + r, in_image % q};
        float* const values = sums + r * g.sums_stride + piece.vector * g.m * kernels_.lanes + piece.from;
        for (std::int64_t i = 0; i < piece.end - piece.from; ++i)
          repair_sum(problem_, x, packed + g.packed_weights, {place.n, k, place.row, place.col + i},
                     values[i]);
        const std::int64_t group = k / g.group_filters, in_group = k % g.group_filters;
        kernels_.finish(values, packed[packed_bias(group, in_group)], bounds_, y + k * p * q + first + r * q,
                        piece.end - piece.from);
      }
  }

  void transform_input(const WinogradTask& task, const float* x, float* memory) const override {
    const WinogradGeometry& g = geometry_;
    for (std::int64_t c = 0; c < g.group_channels; ++c)
      g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
        const float* const phases = split_run(run, task.group * g.group_channels + c, x, memory);
        // Vectors of V that begin in the run before have their first lanes.
        const std::int64_t end = run.offset + run.count;
        for_each_block(task, [&](std::int64_t first, std::int64_t width) {
          const std::int64_t lanes = width * kernels_.lanes, begin = first * kernels_.lanes;
          if (begin >= end || begin + lanes <= run.offset) return;
          const std::int64_t from = std::max(begin, run.offset), skip = from % kernels_.lanes;
          transforms_.input_strip(along_steps_, phases + from - skip - run.offset, skip,
                                  std::min(end, begin + lanes) - (from - skip),
                                  block_of(memory, first) + c * lanes + from - skip - begin, lanes);
        });
      });
  }

  // B down the rows that a run's tiles read of a channel, and the phases of the products:
  // [product][phase][column]. All rows are split before the first is read again.
  const float* split_run(const WinogradRun& run, std::int64_t c, const float* x, float* memory) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t step = g.m * problem_.stride_h, phases = g.m * problem_.stride_w;
    const float* const image = x + (run.n * problem_.c + c) * problem_.h * problem_.w;
    const std::int64_t row = run.row * step - problem_.pad_top, left = run.col * phases - problem_.pad_left;
    const std::int64_t units = run.count + (problem_.s - 1 + problem_.stride_w) / phases,
                       columns = std::max<std::int64_t>(units, kernels_.lanes), width = units * phases;
    const std::int64_t from = std::clamp<std::int64_t>(-left, 0, width),
                       end = std::clamp<std::int64_t>(problem_.w - left, from, width);
    const std::int64_t vectors = (end - from + kernels_.lanes - 1) / kernels_.lanes;
    float* const window = memory + g.rows;
    float* const products = window + g.window_rows * g.strip_pitch;
    const std::int64_t count = std::ssize(g.rows_axis.products);
    const float* const first = image + row * problem_.w + left + from;
    const std::int64_t last_row = row + g.window_rows - 1;
    if (row >= 0 && last_row < problem_.h &&
        first + (g.window_rows - 1) * problem_.w + vectors * kernels_.lanes <= x + problem_.input_elements()) {
      // Rows of the window that comes next.
      for (std::int64_t i = 1; i <= step && last_row + i < problem_.h; ++i)
        fetch(first + (g.window_rows - 1 + i) * problem_.w, end - from);
      transforms_.input_parts(image_steps_, first, vectors, products + from, g.strip_pitch);
    } else {
      for (std::int64_t i = 0; i < g.window_rows; ++i) {
        float* const to = window + i * g.strip_pitch;
        if (row + i < 0 || row + i >= problem_.h)
          std::fill_n(to, vectors * kernels_.lanes, 0.0F);
        else
          std::copy_n(first + i * problem_.w, end - from, to);
      }
      transforms_.input_parts(window_steps_, window, vectors, products + from, g.strip_pitch);
    }
    float* const split = memory + g.half + kLead;
    for (std::int64_t i = 0; i < count; ++i) {
      float* const product = products + i * g.strip_pitch;
      std::fill_n(product, from, 0.0F);
      std::fill_n(product + end, width - end, 0.0F);
      kernels_.split_phases(product, phases, phases, columns, split + i * phases * g.row_pitch, g.row_pitch);
    }
    return split;
  }

  // Into the second cache.
  static void fetch(const float* from, std::int64_t count) {
    constexpr std::int64_t kLine = 16;
    for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i, 0, 2);
  }

  std::vector<WinogradPartStep> image_steps_, window_steps_, along_steps_;
  std::vector<WinogradMultiply> multiply_;  // of blocks of each width
};

}  // namespace

std::unique_ptr<Executable> winograd_decomposed(const ConvProblem& problem, const WinogradConfig& config,
                                                int threads) {
  return std::make_unique<Decomposed>(problem, config, threads);
}

}  // namespace convtune::cpu
