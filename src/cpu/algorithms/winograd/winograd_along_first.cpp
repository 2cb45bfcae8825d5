// The input transform of a filter in parts whose rows of tiles have few vectors (winograd_decomposed.h).
#include <algorithm>
#include <span>
#include <vector>

#include "cpu/algorithms/winograd/winograd_decomposed.h"

namespace convtune::cpu {
namespace {

class AlongFirst final : public WinogradDecomposed {
 public:
  AlongFirst(const ConvProblem& problem, const WinogradConfig& config, int threads)
      : WinogradDecomposed(problem, config, threads) {
    list_steps();
  }

 private:
  // Along the rows of a window, from their phases into half; along columns, from half into V's channels.
  void list_steps() {
    const WinogradGeometry& g = geometry_;
    const std::vector<WinogradPartProduct>&rows = g.rows_axis.products, &cols = g.cols_axis.products;
    const std::int64_t phases = g.m * problem_.stride_w, row_products = std::ssize(cols);
    for (std::int64_t i = 0; i < g.window_rows; ++i) {
      std::int64_t done = i * row_products;
      for (const WinogradPart& part : g.cols_axis.parts) {
        WinogradPartStep step{part.taps, {}, {}};
        for (int l = 0; l <= part.taps; ++l) {
          const std::int64_t col = part.first + l * problem_.stride_w;
          step.from[static_cast<std::size_t>(l)] = (i * phases + col % phases) * g.row_pitch + col / phases;
          step.to[static_cast<std::size_t>(l)] = done++ * g.half_stride;
        }
        row_steps_.push_back(step);
      }
    }
    auto row = rows.begin();
    for (const WinogradPart& part : g.rows_axis.parts) {
      for (std::int64_t col = 0; col < row_products; ++col) {
        const WinogradPartProduct& along = cols[static_cast<std::size_t>(col)];
        WinogradPartStep step{part.taps, {}, {}};
        for (int l = 0; l <= part.taps; ++l) {
          const auto product = static_cast<std::size_t>(row[l].product * g.inputs + along.product);
          step.from[static_cast<std::size_t>(l)] =
              ((part.first + l * problem_.stride_h) * row_products + col) * g.half_stride;
          step.to[static_cast<std::size_t>(l)] = g.first_channel[product] + g.part_channel(row[l], along);
        }
        column_steps_.push_back(step);
      }
      row += part.taps + 1;
    }
  }

  void transform_input(const WinogradTask& task, const float* x, float* memory) const override {
    const WinogradGeometry& g = geometry_;
    const std::int64_t row_products = std::ssize(g.cols_axis.products);
    float* const half = memory + g.half;
    for (std::int64_t c = 0; c < g.group_channels; ++c) {
      g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
        transform_rows(run, task.group * g.group_channels + c, x, memory + g.rows, half + run.offset);
      });
      clear_junk(task, half, g.window_rows * row_products);
      for_each_block(task, [&](std::int64_t first, std::int64_t width) {
        transforms_.input_parts(column_steps_, half + first * kernels_.lanes, width,
                                block_of(memory, first) + c * width * kernels_.lanes, width * kernels_.lanes);
      });
    }
  }

  // B along the rows that a run's tiles read of a channel: to[row][product of the parts along it][tile of the
  // run]. All rows are split before the first is read again.
  void transform_rows(const WinogradRun& run, std::int64_t c, const float* x, float* memory,
                      float* to) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t row_products = std::ssize(g.cols_axis.products), step = g.m * problem_.stride_h;
    const std::int64_t phases = g.m * problem_.stride_w, parts = std::ssize(g.cols_axis.parts);
    const float* const image = x + (run.n * problem_.c + c) * problem_.h * problem_.w;
    float* const planes = memory + phases * g.row_pitch;
    const std::int64_t first = run.row * step - problem_.pad_top;
    const std::int64_t from = std::clamp<std::int64_t>(-first, 0, g.window_rows);
    const std::int64_t end = std::clamp<std::int64_t>(problem_.h - first, from, g.window_rows);
    const RowSplit split(*this, run);
    for (std::int64_t i = from; i < end; ++i) {
      const float* const row = image + (first + i) * problem_.w;
      // Rows of the window that come next, which the tiles above do not have.
      if (i >= g.window_rows - step && first + i + step < problem_.h)
        fetch(row + step * problem_.w + run.col * phases, run.count * phases);
      split_row(x, row, split, memory, planes + i * phases * g.row_pitch);
    }
    transforms_.input_parts(
        std::span(row_steps_)
            .subspan(static_cast<std::size_t>(from * parts), static_cast<std::size_t>((end - from) * parts)),
        planes, (run.count - 1) / kernels_.lanes + 1, to, 1);
    for (std::int64_t i = 0; i < g.window_rows * row_products; ++i)
      if (i < from * row_products || i >= end * row_products)
        std::fill_n(to + i * g.half_stride, run.count, 0.0F);
  }

  // The columns of a row that are split into phases, counted once for all rows of a run: columns from the
  // input's `left` on, as many as whole vectors take, of which [from, end) lie in the image and the first
  // `needed` are of use.
  struct RowSplit {
    RowSplit(const AlongFirst& of, const WinogradRun& run) : phases(of.geometry_.m * of.problem_.stride_w) {
      const ConvProblem& a = of.problem_;
      const std::int64_t units = run.count + (a.s - 1 + a.stride_w) / phases;
      columns = std::max<std::int64_t>(units, of.kernels_.lanes);
      left = run.col * phases - a.pad_left, needed = units * phases, width = columns * phases;
      from = std::clamp<std::int64_t>(-left, 0, width);
      end = std::clamp<std::int64_t>(a.w - left, from, width);
      end_unit = end / phases;
    }
    std::int64_t phases, columns, left, needed, width, from, end, end_unit;
  };

  // planes[j][i] = column i * phases + j of a row of x, zeros beside the image. What lies there in memory,
  // the rows before and behind, is split too and made zero, but where x begins or ends.
  void split_row(const float* x, const float* row, const RowSplit& split, float* memory,
                 float* planes) const {
    const std::int64_t pitch = geometry_.row_pitch, phases = split.phases;
    const std::int64_t begin = row - x + split.left;
    if (begin >= 0 && begin + split.width <= elements_) {
      kernels_.split_phases(row + split.left, phases, phases, split.columns, planes, pitch);
      const auto clear = [&](std::int64_t i, std::int64_t until, std::int64_t unit) {
        for (std::int64_t phase = i - unit * phases; i < until; ++i) {
          planes[phase * pitch + unit] = 0;
          if (++phase == phases) phase = 0, ++unit;
        }
      };
      clear(0, split.from, 0);
      clear(split.end, split.needed, split.end_unit);
      return;
    }
    std::fill_n(memory, split.from, 0.0F);
    std::copy_n(row + split.left + split.from, split.end - split.from, memory + split.from);
    std::fill_n(memory + split.end, split.width - split.end, 0.0F);
    kernels_.split_phases(memory, phases, phases, split.columns, planes, pitch);
  }

  std::vector<WinogradPartStep> row_steps_, column_steps_;
};

}  // namespace

std::unique_ptr<Executable> winograd_along_first(const ConvProblem& problem, const WinogradConfig& config,
                                                 int threads) {
  return std::make_unique<AlongFirst>(problem, config, threads);
}

}  // namespace convtune::cpu
