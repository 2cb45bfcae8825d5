// See direct_executable.h.
#include "cpu/algorithms/direct/direct_executable.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/algorithms/direct/direct_window.h"
#include "cpu/base/caches.h"
#include "cpu/base/parallel.h"
#include "cpu/reference/padding_repair.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/memory_plan.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

// T: the element type of all tensors.
template <class T>
class DirectExecutable final : public Executable {
 public:
  DirectExecutable(const ConvProblem& problem, const DirectConfig& config, const DeviceInfo& on)
      : problem_(problem),
        config_(config),
        fetches_ahead_(static_cast<std::int64_t>(sizeof(T)) * problem.input_elements() > l2_bytes_of(on)),
        epilogue_(epilogue_of(problem)),
        kernels_(*direct_kernels(config.vector_bits)),
        tile_(*find_tile(direct_tiles(kernels_, problem), config.channels, config.vectors)),
        cutting_tile_(find_tile(kernels_.cutting_tiles, config.channels, config.vectors)),
        geometry_(problem, config, kernels_.lanes),
        threads_(on.units) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(flag_offset() + 1) * sizeof(float);
  }

  // [group][register tile][tap][channel of the tile], then the bias in the same padded order, then
  // whether any weight is infinite or NaN.
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const DirectGeometry& g = geometry_;
    auto* out = static_cast<float*>(packed);
    const std::int64_t in_filter = problem_.weight_elements() / problem_.k;
    std::fill_n(out, flag_offset() + 1, 0.0F);
    bool finite = true;
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      const std::int64_t group = k / g.group_filters, filter = k % g.group_filters;
      const auto weight = [&](std::int64_t index) {
        const float value = load(problem_.dtype.w, w, k * in_filter + index);
        finite = finite && std::isfinite(value);
        return value;
      };
      float* const tile = out + packed_filter(group, filter);
      for (std::int64_t t = 0; t < g.taps; ++t) {
        const auto [lower, upper] = g.tap_weights[static_cast<std::size_t>(t)];
        store(problem_.dtype.w, tile + t * config_.channels, 0, weight(lower));
        if (upper >= 0) store(problem_.dtype.w, tile + t * config_.channels, 1, weight(upper));
      }
      if (bias) out[packed_bias(group, filter)] = load(problem_.dtype.bias, bias, k);
    }
    out[flag_offset()] = finite ? 0 : 1;
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const auto* weights = static_cast<const float*>(packed);
    const Outputs<T> outputs = outputs_of<T>(problem_, tensors);
    // y may be the residual, which is read before it is written.
    const bool repairs = weights[flag_offset()] != 0;
    std::vector<float> residual;
    if (repairs && problem_.residual)
      residual = to_floats(problem_.dtype.y, tensors.residual, problem_.output_elements());
    parallel_tasks(threads_, geometry_.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(geometry_.memory);
      float *const window = memory + geometry_.window, *const sums = memory + geometry_.sums;
      WindowAhead ahead;
      CutLines cuts(geometry_.cut_lines < 0 ? nullptr : memory + geometry_.cut_lines);
      std::int64_t staged = -1;  // consecutive tasks share a tile and differ in their filters
      for (std::int64_t task = 0; tasks.next(task);) {
        const OutputTile tile = geometry_.tile(task / geometry_.filter_tasks);
        if (staged != tile.index) {
          if (config_.staged != 0) stage_window(problem_, geometry_, kernels_, tile, tensors.x, window);
          ahead = window_ahead(tile, tasks.share_end(), tensors.x);
        }
        staged = tile.index;
        const float* const inputs = config_.staged != 0 ? window : inputs_of(tile, tensors.x);
        compute(tile, geometry_.blocks_of(task), inputs, sums, weights, outputs, cuts, ahead);
      }
      cuts.finish();
      if (config_.stream) kernels_.fence();
    });
    if (repairs) repair(tensors, weights, residual);
  }

 private:
  // Offsets in the packed weights at which pack() puts tap 0 of filter k of a group, and its bias.
  std::int64_t packed_filter(std::int64_t group, std::int64_t k) const {
    return (group * geometry_.filter_blocks + k / config_.channels) * geometry_.packed_block +
           k % config_.channels;
  }
  std::int64_t packed_bias(std::int64_t group, std::int64_t k) const {
    const std::int64_t padded = geometry_.filter_blocks * config_.channels;
    return problem_.groups * padded * geometry_.taps + group * padded + k;
  }
  std::int64_t flag_offset() const { return packed_bias(problem_.groups, 0); }

  void repair(const Tensors& tensors, const float* packed, const std::vector<float>& residual) const {
    std::vector<float> w(static_cast<std::size_t>(problem_.weight_elements())),
        bias(static_cast<std::size_t>(problem_.k));
    const std::int64_t in_filter = problem_.weight_elements() / problem_.k;
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      const std::int64_t group = k / geometry_.group_filters, filter = k % geometry_.group_filters;
      for (std::int64_t t = 0; t < geometry_.taps; ++t) {
        const float* const word = packed + packed_filter(group, filter) + t * config_.channels;
        const auto [lower, upper] = geometry_.tap_weights[static_cast<std::size_t>(t)];
        w[static_cast<std::size_t>(k * in_filter + lower)] = load(problem_.dtype.w, word, 0);
        if (upper >= 0) w[static_cast<std::size_t>(k * in_filter + upper)] = load(problem_.dtype.w, word, 1);
      }
      bias[static_cast<std::size_t>(k)] = packed[packed_bias(group, filter)];
    }
    const std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, problem_.input_elements());
    repair_padded_outputs(problem_,
                          {.x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()},
                          tensors.y);
  }

  // Returns what is staged after a tile, by a thread whose tasks end before `end`.
  WindowAhead window_ahead(const OutputTile& tile, std::int64_t end, const void* x) const {
    const DirectGeometry& g = geometry_;
    if (!fetches_ahead_ || g.col_tiles > 1 || (tile.index + 1) * g.filter_tasks >= end) return {};
    // Calls of kernels, counted as if every register tile were full.
    const std::int64_t lines = config_.flat ? 1 : tile.rows;
    const std::int64_t length = config_.flat ? tile.rows * g.pitch : tile.cols;
    const std::int64_t calls = g.filter_blocks * lines * ((length - 1) / g.block + 1);
    return {problem_, tile, g.tile(tile.index + 1), x, calls, g.taps};
  }

  // Returns the tile's first input in x, where x is read as it lies.
  const float* inputs_of(const OutputTile& tile, const void* x) const {
    const std::int64_t channel = tile.image * problem_.c + tile.group * geometry_.group_channels;
    return static_cast<const float*>(x) + (channel * problem_.h + tile.row) * problem_.w;
  }

  // All outputs of a tile for the filters of one task, from its window. `sums`: of a register tile.
  void compute(const OutputTile& tile, const FilterRange& filters, const float* window, float* sums,
               const float* packed, const Outputs<T>& outputs, CutLines& cuts, WindowAhead& ahead) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t lanes = kernels_.lanes;
    const std::int64_t lines = config_.flat ? 1 : tile.rows;
    const std::int64_t length = config_.flat ? (tile.rows - 1) * g.pitch + tile.cols : tile.cols;
    const bool cuts_lines = !keeps_lines(tile, lines, length, outputs.y);
    for (std::int64_t line = 0; line < lines; ++line) {
      const std::int64_t turn = cuts_lines ? turned(tile, window, length, outputs.y) : 0,
                         skip = turn != 0 ? 0 : first_skipped(tile, line, length, outputs.y);
      const auto [readable, end] =
          config_.staged != 0 ? Readable{-skip, length + g.block} : readable_of(tile, line);
      const LineBlocks blocks((skip + length - 1) / lanes + 1, config_.vectors, g.line_unit);
      CutLines::Row row{};
      if constexpr (sizeof(T) == 4) {
        if (cuts_lines && -skip >= readable && blocks.vectors * lanes - skip <= end)
          row = cuts.row(outputs.y + output_of(tile, filters, line, 0), filters_of(filters),
                         g.output_rows * g.output_cols, length);
        else
          cuts.finish();  // lanes of x's first or last elements are no line's
      }
      for (std::int64_t b = 0; b < blocks.count; ++b) {
        std::int64_t from = blocks.first(b) * lanes - skip, to = blocks.first(b + 1) * lanes - skip;
        const auto put = [&](std::int64_t first, std::int64_t vectors, std::int64_t skipped,
                             std::int64_t until) {
          multiply(tile, filters,
                   {line * g.pitch + first, vectors, line, first, skipped, until - first, row, turn}, window,
                   sums, packed, outputs, ahead);
          if (turn != 0) row.begun = row.cut;
        };
        if (from < 0) {
          // Whole vectors before the line are nothing's; of one that begins before x, the outputs are done
          // from the line's own first.
          from += -from / lanes * lanes;
          if (from < readable) put(0, 1, 0, from + lanes), from += lanes;
        }
        // A line that ends behind x has its last vector begin earlier.
        const bool behind = to > end;
        if (behind) to -= lanes;
        if (from < to) put(from, (to - from) / lanes, std::max<std::int64_t>(-from, 0), length);
        if (behind) put(length - lanes, 1, to - (length - lanes), length);
      }
    }
  }

  // The place in y of a pixel of a tile's row, for a task's first filter; and how many filters the task has.
  std::int64_t output_of(const OutputTile& tile, const FilterRange& filters, std::int64_t row,
                         std::int64_t col) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t k =
        tile.image * problem_.k + tile.group * g.group_filters + filters.first * config_.channels;
    return (k * g.output_rows + tile.row + row) * g.output_cols + tile.col + col;
  }
  std::int64_t filters_of(const FilterRange& filters) const {
    return std::min(filters.end * config_.channels, geometry_.group_filters) -
           filters.first * config_.channels;
  }

  // Positions of a line of planes which are read where they lie that are elements of x: of the first channel
  // those from `first`, of the last one those before `end`.
  struct Readable {
    std::int64_t first, end;
  };
  Readable readable_of(const OutputTile& tile, std::int64_t line) const {
    const std::int64_t plane = problem_.h * problem_.w, row = (tile.row + line) * problem_.w;
    const std::int64_t channel = tile.image * problem_.c + tile.group * geometry_.group_channels;
    return {-(channel * plane + row),
            (problem_.n * problem_.c - channel - geometry_.group_channels + 1) * plane - row};
  }

  // Positions of a line's first vectors that lie before its first output, so that whole lines of the cache
  // are stored: y need not begin at one (NumPy's arrays do not), nor need a row of it. A vector more is paid
  // where stores go past the caches, which takes whole lines.
  std::int64_t first_skipped(const OutputTile& tile, std::int64_t line, std::int64_t length,
                             const T* y) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t lanes = kernels_.lanes;  // a power of two: no divisions
    const std::int64_t within = lanes * g.line_unit - 1;
    if (!g.straight || (g.output_rows * g.output_cols & within) != 0) return 0;
    const std::int64_t output = (tile.row + line) * g.output_cols + tile.col;
    const auto place = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) / sizeof(T));
    const std::int64_t skip = (place + output) & within;
    const bool fits = ((length - 1) & (lanes - 1)) + (skip & (lanes - 1)) < lanes;
    return fits || config_.stream != 0 ? skip : 0;
  }

  // Tells whether a tile's rows begin and end with lines, or y's type and planes are such that no line is
  // ever kept.
  bool keeps_lines(const OutputTile& tile, std::int64_t lines, std::int64_t length, const T* y) const {
    const DirectGeometry& g = geometry_;
    if (g.cut_lines < 0) return true;
    const auto first = static_cast<std::int64_t>(
        reinterpret_cast<std::uintptr_t>(y + tile.row * g.output_cols + tile.col) / sizeof(T));
    const std::int64_t next = lines > 1 ? g.output_cols : 0;
    return ((first | next | length) & (CutLines::kFloats - 1)) == 0;
  }

  // How many floats behind a line a whole row of y begins whose vectors are turned before they are stored: it
  // then takes as many as where it begins at a line, and they are read as there. Where x is read as it lies
  // and begins as y does, vectors that begin at lines of both take less. 0: they are not turned.
  std::int64_t turned(const OutputTile& tile, const float* window, std::int64_t length, const T* y) const {
    const DirectGeometry& g = geometry_;
    const auto place = [](const void* at) {
      return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at) % kCacheLineBytes / sizeof(T));
    };
    if (tile.cols != g.output_cols || length % CutLines::kFloats != 0) return 0;
    const std::int64_t turn = place(y + tile.row * g.output_cols);
    return config_.staged == 0 && place(window) == turn ? 0 : turn;
  }

  // The positions of one register tile: where they lie in the window, how many vectors, and for outputs that
  // are stored straight from registers the output pixel of the first, how many are skipped and where they
  // end.
  struct Block {
    std::int64_t position, vectors, row, col, skip, outputs;
    CutLines::Row line;  // the lines of the cache that the row begins and ends within
    std::int64_t turn;   // TileArgs'
  };

  // The outputs of a block for the filters of a task, in register tiles.
  void multiply(const OutputTile& tile, const FilterRange& filters, const Block& block, const float* window,
                float* sums, const float* packed, const Outputs<T>& outputs, WindowAhead& ahead) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t plane = g.output_rows * g.output_cols;
    const std::int64_t first = filters.first * config_.channels;  // filter, within the group
    TileArgs args{.window = window + block.position,
                  .taps = g.tap_offsets.data(),
                  .tap_count = g.taps,
                  .weights = packed + packed_filter(tile.group, first),
                  .acc = sums,
                  .acc_stride = g.block,
                  .halves = g.taps - g.whole_taps};
    Outputs<T> to{};
    if (g.straight) {
      to = outputs + output_of(tile, filters, block.row, block.col);
      args.line = block.line;
      args.turn = block.turn;
      args.y_stride = plane;
      args.y_channels = g.group_filters - first;  // channels from the register tile's first on
      args.skip = block.skip;
      args.count = block.outputs;
      args.bias = packed + packed_bias(tile.group, first);
      args.epilogue = epilogue_;
      args.stream = config_.stream != 0;
    }
    const bool cuts = args.turn != 0 || args.line.begun != nullptr || args.line.cut != nullptr;
    const TileKernel kernel =
        (cuts ? *cutting_tile_ : tile_).kernels[static_cast<std::size_t>(block.vectors - 1)];
    for (std::int64_t f = filters.first; f < filters.end; ++f) {
      args.y = to.y, args.residual = to.residual;
      ahead.fetch();
      kernel(args);
      args.weights += g.packed_block;
      if (!g.straight) {
        store_rows(tile, f, block.position, block.position + block.vectors * kernels_.lanes, sums, packed,
                   outputs);
        continue;
      }
      to = to + config_.channels * plane;
      if (args.line.begun != nullptr) args.line.begun += config_.channels * CutLines::kFloats;
      if (args.line.cut != nullptr) args.line.cut += config_.channels * CutLines::kFloats;
      args.y_channels -= config_.channels;
      args.bias += config_.channels;
    }
  }

  // The filters of one register tile that exist, as f(channel of the tile, filter of the problem, bias).
  template <class Visit>
  void for_each_filter(const OutputTile& tile, std::int64_t block, const float* packed, Visit&& visit) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t first = block * config_.channels;
    const float* bias = packed + packed_bias(tile.group, first);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(config_.channels, g.group_filters - first); ++i)
      visit(i, tile.group * g.group_filters + first + i, bias[i]);
  }

  // Adds bias and residual, activates and writes positions [begin, end) of a register tile, row by row.
  void store_rows(const OutputTile& tile, std::int64_t block, std::int64_t begin, std::int64_t end,
                  float* acc, const float* packed, const Outputs<T>& outputs) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t q = g.output_cols, plane = g.output_rows * q;
    for (std::int64_t row = begin / g.pitch; row < tile.rows && row * g.pitch < end; ++row) {
      const std::int64_t from = std::max(begin, row * g.pitch);
      const std::int64_t to = std::min(end, row * g.pitch + tile.cols);
      if (from >= to) continue;
      const std::int64_t pixel = (tile.row + row) * q + tile.col + from - row * g.pitch;
      for_each_filter(tile, block, packed, [&](std::int64_t i, std::int64_t k, float bias) {
        float* const values = acc + i * g.block + from - begin;
        if (problem_.layout == Layout::nchw)
          finish(values, bias, outputs + ((tile.image * problem_.k + k) * plane + pixel), to - from);
        else if constexpr (sizeof(T) == 4)
          finish_pixels(values, bias, outputs + ((tile.image * plane + pixel) * problem_.k + k), to - from);
      });
    }
  }

  void finish(const float* acc, float bias, const Outputs<T>& to, std::int64_t count) const {
    if constexpr (sizeof(T) == 2)
      kernels_.finish_bf16(acc, bias, epilogue_, to, count);
    else
      kernels_.finish(acc, bias, epilogue_, to, count);
  }
  // Channels last, which are of f32: of so many pixels one channel.
  void finish_pixels(float* values, float bias, const Outputs<T>& to, std::int64_t count) const {
    for (std::int64_t j = 0; to.residual != nullptr && j < count; ++j)
      values[j] += to.residual[j * problem_.k];
    kernels_.finish(values, bias, epilogue_, {values, nullptr}, count);
    for (std::int64_t j = 0; j < count; ++j) to.y[j * problem_.k] = values[j];
  }

  ConvProblem problem_;
  DirectConfig config_;
  bool fetches_ahead_;  // true: x is larger than the second cache
  Epilogue epilogue_;
  const DirectKernels& kernels_;
  const TileShape& tile_;
  const TileShape* cutting_tile_;  // that of kernels which cut lines, or null
  DirectGeometry geometry_;
  int threads_;
};

}  // namespace

std::unique_ptr<Executable> direct_executable(const ConvProblem& problem, const DirectConfig& config,
                                              const DeviceInfo& on) {
  if (problem.dtype.x == DType::bf16) return std::make_unique<DirectExecutable<Bf16>>(problem, config, on);
  return std::make_unique<DirectExecutable<float>>(problem, config, on);
}

}  // namespace convtune::cpu
