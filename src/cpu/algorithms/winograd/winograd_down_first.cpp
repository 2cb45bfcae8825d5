// The input transform of a filter in parts whose rows of tiles have many vectors (winograd_decomposed.h).
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "cpu/algorithms/winograd/winograd_decomposed.h"
#include "cpu/tile/winograd/winograd_strip.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kLead = 16;  // floats: the widest vector

class DownFirst final : public WinogradDecomposed {
 public:
  DownFirst(const ConvProblem& problem, const WinogradConfig& config, int threads)
      : WinogradDecomposed(problem, config, threads), strips_(problem, config.vector_bits, kernels_.lanes) {
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
          places_.push_back(step.to[static_cast<std::size_t>(l)]);
        }
        along_steps_.push_back(step);
      }
    }
  }

  void transform_input(const WinogradTask& task, const float* x, float* memory) const override {
    const WinogradGeometry& g = geometry_;
    if (strips_) return transform_strips(task, x, memory);
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

  struct Block {
    std::int64_t first, end;  // tiles
    float* v;
  };

  // In registers, for filters that have such a kernel.
  void transform_strips(const WinogradTask& task, const float* x, float* memory) const {
    const WinogradGeometry& g = geometry_;
    std::vector<Block> blocks;
    for_each_block(task, [&](std::int64_t first, std::int64_t width) {
      blocks.push_back({first * kernels_.lanes, (first + width) * kernels_.lanes, block_of(memory, first)});
    });
    // Lanes that fill up the last vector are zero.
    const Block& last = blocks.back();
    if (task.tiles < last.end)
      for (std::int64_t row = 0; row < g.first_channel.back(); ++row)
        std::fill(last.v + row * (last.end - last.first) + task.tiles - last.first,
                  last.v + (row + 1) * (last.end - last.first), 0.0F);
    // Part by part: strips end amid a line of V, which is still in the first cache when the next one begins
    // there.
    std::size_t down = 0;
    for (const WinogradPart& part : g.rows_axis.parts) {
      const std::size_t end = down + static_cast<std::size_t>(part.taps) + 1;
      transform_part(task, blocks, down, end, x, memory);
      down = end;
    }
  }

  void transform_part(const WinogradTask& task, std::span<const Block> blocks, std::size_t first_down,
                      std::size_t end_down, const float* x, float* memory) const {
    const WinogradGeometry& g = geometry_;
    std::array<WinogradStrip::Piece, kMostPieces> pieces{};
    auto block = blocks.begin();
    g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
      if (first_down == 0) fetch_next_rows(task, run, x);
      const std::int64_t run_end = run.offset + run.count;
      for (std::int64_t at = run.offset, next; at < run_end; at = next) {
        next = std::min<std::int64_t>(at + kernels_.lanes, run_end);
        while (block->end <= at) ++block;
        std::size_t count = 0;
        for (auto one = block; one != blocks.end() && one->first < next; ++one)
          pieces[count++] = {one->v + at - one->first, one->end - one->first,
                             std::max<std::int64_t>(one->first - at, 0), std::min(one->end, next) - at};
        strips_.transform({run.n, run.row, run.col + at - run.offset, task.group * g.group_channels,
                           g.group_channels, first_down, end_down},
                          std::span(pieces).first(count), places_.data(), x, memory + g.rows);
      }
    });
  }

  // Fetches rows of the window below that this one does not have.
  void fetch_next_rows(const WinogradTask& task, const WinogradRun& run, const float* x) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t step = g.m * problem_.stride_h, phases = g.m * problem_.stride_w;
    const std::int64_t first = run.row * step - problem_.pad_top + g.window_rows;
    const std::int64_t col = std::max<std::int64_t>(run.col * phases - problem_.pad_left, 0);
    const std::int64_t count = std::min(run.count * phases, problem_.w - col);
    for (std::int64_t c = 0; c < g.group_channels; ++c)
      for (std::int64_t row = first; row < std::min(first + step, problem_.h); ++row)
        if (row >= 0)
          fetch(
              x + ((run.n * problem_.c + task.group * g.group_channels + c) * problem_.h + row) * problem_.w +
                  col,
              count);
  }

  // B down the rows that a run's tiles read of a channel, and the phases of the products:
  // [product][phase][column]. All rows are split before the first is read again, and as they were written.
  const float* split_run(const WinogradRun& run, std::int64_t c, const float* x, float* memory) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t step = g.m * problem_.stride_h, phases = g.m * problem_.stride_w;
    const std::int64_t row = run.row * step - problem_.pad_top, left = run.col * phases - problem_.pad_left;
    const std::int64_t units = run.count + (problem_.s - 1 + problem_.stride_w) / phases,
                       width = units * phases;
    const std::int64_t from = std::clamp<std::int64_t>(-left, 0, width),
                       end = std::clamp<std::int64_t>(problem_.w - left, from, width);
    const std::int64_t vectors = (width + kernels_.lanes - 1) / kernels_.lanes;
    const std::int64_t first = ((run.n * problem_.c + c) * problem_.h + row) * problem_.w + left,
                       last = first + (g.window_rows - 1) * problem_.w;
    float* const window = memory + g.rows;
    float* const products = window + g.window_rows * g.strip_pitch;
    if (row >= 0 && row + g.window_rows <= problem_.h && first >= 0 &&
        last + vectors * kernels_.lanes <= elements_) {
      // Rows of the window that comes next.
      for (std::int64_t i = 1; i <= step && row + g.window_rows - 1 + i < problem_.h; ++i)
        fetch(x + (last + from + i * problem_.w), end - from);
      transforms_.input_parts(image_steps_, x + first, vectors, products, g.strip_pitch);
    } else {
      for (std::int64_t i = 0; i < g.window_rows; ++i) {
        float* const to = window + i * g.strip_pitch;
        if (row + i < 0 || row + i >= problem_.h)
          std::fill_n(to, width, 0.0F);
        else
          std::copy_n(x + (first + i * problem_.w + from), end - from, to + from);
      }
      transforms_.input_parts(window_steps_, window, vectors, products, g.strip_pitch);
    }
    float* const split = memory + g.half + kLead;
    const std::int64_t columns = std::max<std::int64_t>(units, kernels_.lanes);
    for (std::int64_t i = 0; i < std::ssize(g.rows_axis.products); ++i) {
      float* const to = split + i * phases * g.row_pitch;
      kernels_.split_phases(products + i * g.strip_pitch, phases, phases, columns, to, g.row_pitch);
      // Columns beside the image, which were read from the rows before and behind, or from nothing.
      for (std::int64_t col = 0; col < from; ++col) to[col % phases * g.row_pitch + col / phases] = 0;
      for (std::int64_t col = end; col < width; ++col) to[col % phases * g.row_pitch + col / phases] = 0;
    }
    return split;
  }

  std::vector<WinogradPartStep> image_steps_, window_steps_, along_steps_;
  WinogradStrips strips_;
  std::vector<std::int64_t> places_;  // in V, of strips' products
};

}  // namespace

std::unique_ptr<Executable> winograd_down_first(const ConvProblem& problem, const WinogradConfig& config,
                                                int threads) {
  return std::make_unique<DownFirst>(problem, config, threads);
}

}  // namespace convtune::cpu
