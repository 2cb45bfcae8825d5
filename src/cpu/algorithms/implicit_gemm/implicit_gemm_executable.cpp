// See implicit_gemm_executable.h.
#include "cpu/algorithms/implicit_gemm/implicit_gemm_executable.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/algorithms/implicit_gemm/implicit_gemm_candidates.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/base/parallel.h"
#include "cpu/reference/padding_repair.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/tensor_kernels.h"
#include "cpu/tile/weave.h"
#include "problem/config_fields.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kWord = sizeof(float), kLine = 16;

class ImplicitGemmExecutable final : public Executable {
 public:
  ImplicitGemmExecutable(const ConvProblem& problem, const ImplicitGemmConfig& config, int threads)
      : problem_(problem),
        config_(config),
        words_(config.bf16 != 0 ? Words::bf16_pairs : Words::f32),
        kernels_(*implicit_gemm_kernels(config.vector_bits)),
        multiply_(multiply_kernels(kernels_, problem, config)),
        tensors_(*tensor_kernels(config.vector_bits)),
        rounds_by_instruction_(config.bf16 != 0 && rounds_by_instruction(problem)),
        geometry_(problem, config, kernels_.lanes),
        planes_(reads_planes(problem, config)),
        threads_(threads) {
    const ImplicitGemmGeometry& g = geometry_;
    for (std::int64_t c = 0; c < (planes_ ? problem.c : 1); ++c)
      for (std::int64_t r = 0; r < problem.r; ++r)
        for (std::int64_t s = 0; s < (config.joined != 0 ? 1 : problem.s); ++s)
          taps_.push_back((c * problem.h + r * g.dilation_row) * g.row_step +
                          s * g.dilation_col * g.col_step);
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(flag_offset() + 1) * sizeof(float);
  }

  // Weights in the order of implicit_gemm_geometry.h, zeros where a block's lanes have no channel; then the
  // bias in the order of the lanes, then whether any weight is infinite or NaN.
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const ImplicitGemmGeometry& g = geometry_;
    auto* const to = static_cast<float*>(packed);
    std::fill_n(to, flag_offset() + 1, 0.0F);
    const bool pairs = words_ == Words::bf16_pairs;
    bool finite = true;
    std::vector<float> filter(static_cast<std::size_t>(g.group_channels * problem_.r * problem_.s));
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      for (std::int64_t i = 0; i < std::ssize(filter); ++i) {
        filter[static_cast<std::size_t>(i)] = load(problem_.dtype.w, w, k * std::ssize(filter) + i);
        finite = finite && std::isfinite(filter[static_cast<std::size_t>(i)]);
      }
      for_each_weight(k, [&](std::int64_t at, std::int64_t half, std::int64_t index) {
        const float value = filter[static_cast<std::size_t>(index)];
        if (pairs)
          store(DType::bf16, to + at, half, static_cast<double>(value));
        else
          to[at] = value;
      });
      if (problem_.bias) to[bias_offset(k)] = load(problem_.dtype.bias, bias, k);
    }
    to[flag_offset()] = finite ? 0 : 1;
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const ImplicitGemmGeometry& g = geometry_;
    const auto* const weights = static_cast<const float*>(packed);
    // y may be the residual, which is read before it is written.
    const bool repairs = weights[flag_offset()] != 0 && config_.staged != 0;
    std::vector<float> residual;
    if (repairs && problem_.residual)
      residual = to_floats(problem_.dtype.y, tensors.residual, problem_.output_elements());
    parallel_tasks(threads_, g.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(g.memory);
      Task task{tensors,
                weights,
                memory + g.window,
                memory + g.sums,
                reinterpret_cast<std::int64_t*>(memory + g.inputs),
                reinterpret_cast<std::int64_t*>(memory + g.outputs),
                {}};
      std::int64_t staged = -1;  // consecutive tasks share a tile and differ in their output channels
      for (std::int64_t i = 0; tasks.next(i);) {
        task.tile = g.tile(i / g.filter_tasks);
        if (staged != task.tile.index) {
          place_pixels(task);
          if (config_.staged != 0) stage(task);
        }
        staged = task.tile.index;
        const FilterRange blocks = g.blocks_of(i);
        for (std::int64_t block = blocks.first; block < blocks.end; ++block) compute(task, g.block(block));
      }
    });
    if (repairs) repair(tensors, weights, residual);
  }

 private:
  struct Task {
    const Tensors& tensors;
    const float* weights;
    float *window, *sums;
    std::int64_t *inputs, *outputs;  // pixels of the tile: offsets in the window, indices in y
    OutputTile tile;
  };

  // visit(place in the packed weights, half of that word, place in the filter) of all weights of an output
  // channel.
  template <class Visit>
  void for_each_weight(std::int64_t k, Visit&& visit) const {
    const ImplicitGemmGeometry& g = geometry_;
    const std::int64_t vector = k % g.group_filters / g.lanes;
    std::int64_t index = vector * g.filter_blocks / g.filter_units;
    while (g.block(index).first > vector) --index;
    while (g.block(index).first + g.block(index).count <= vector) ++index;
    const FilterBlock block = g.block(index);
    const std::int64_t lane = k % g.group_filters - block.first * g.lanes;
    const std::int64_t in_word = words_ == Words::bf16_pairs ? 2 : 1, width = block.count * g.lanes;
    const std::int64_t taps = problem_.r * problem_.s;
    const std::int64_t run = config_.joined != 0 ? problem_.s : 1;  // filter columns of a tap
    for (std::int64_t c = 0; c < g.group_channels; ++c)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t element = planes_ ? tap % run : tap % run * g.group_channels + c;
        const std::int64_t row = planes_ ? c * problem_.r + tap / run : tap / run;
        const std::int64_t word = element / in_word, pass = word / g.pass_words;
        visit(k / g.group_filters * group_weights() + g.packed_offset(block, pass) +
                  (row * g.words_of(pass) + word % g.pass_words) * width + lane,
              element % in_word, c * taps + tap);
      }
  }
  std::int64_t group_weights() const {
    return geometry_.taps * geometry_.lanes * geometry_.filter_units * geometry_.words;
  }
  std::int64_t bias_offset(std::int64_t k) const {
    return problem_.groups * group_weights() +
           k / geometry_.group_filters * geometry_.filter_units * geometry_.lanes +
           k % geometry_.group_filters;
  }
  std::int64_t flag_offset() const { return bias_offset(problem_.k); }

  void place_pixels(const Task& task) const {
    const ImplicitGemmGeometry& g = geometry_;
    const OutputTile& tile = task.tile;
    // Offsets begin at the tile's own place in x where x is read as it lies.
    const bool staged = config_.staged != 0;
    const std::int64_t first_row = staged ? 0 : tile.row, first_col = staged ? 0 : tile.col;
    std::int64_t j = 0;
    for (std::int64_t row = 0; row < tile.rows; ++row)
      for (std::int64_t col = 0; col < tile.cols; ++col, ++j) {
        task.inputs[j] = tile.image * g.image_step + (first_row + row) * g.stride_row * g.row_step +
                         (first_col + col) * g.stride_col * g.col_step;
        task.outputs[j] = (tile.image * g.output_rows + tile.row + row) * g.output_cols + tile.col + col;
      }
  }

  // The tile's window, zeros where it reaches past the image.
  void stage(const Task& task) const {
    const ImplicitGemmGeometry& g = geometry_;
    const OutputTile& tile = task.tile;
    const ConvProblem& a = problem_;
    const bool nchw = a.layout == Layout::nchw;
    const std::int64_t in_word = words_ == Words::bf16_pairs ? 2 : 1, bytes = size_of(a.dtype.x);
    const std::int64_t pixel = nchw ? 1 : a.c, channel = nchw ? a.h * a.w : 1;
    // Window columns [from, to) lie inside the image.
    const std::int64_t left = tile.col * a.stride_w - a.pad_left;
    const auto column_at = [&](std::int64_t input) {
      return std::clamp<std::int64_t>((input - left + g.input_col - 1) / g.input_col, 0, g.window_cols);
    };
    const std::int64_t from = left >= 0 ? 0 : column_at(0),
                       to = left >= a.w ? from : std::max(from, column_at(a.w));
    // Rows that follow each other in the image and in the window are read as one.
    const bool whole = from == 0 && to == g.window_cols && to == a.w && g.input_row == 1 && g.input_col == 1;
    for (std::int64_t pass = 0; pass < g.passes; ++pass)
      for (std::int64_t row = 0, rows = 1; row < g.window_rows; row += rows) {
        char* const words = reinterpret_cast<char*>(task.window) + pass * g.pass_step + row * g.row_step;
        const std::int64_t input = tile.row * a.stride_h - a.pad_top + row * g.input_row;
        const bool inside = input >= 0 && input < a.h && from < to;
        const std::int64_t begin = inside ? from : g.window_cols, end = inside ? to : g.window_cols;
        std::fill_n(words, begin * g.col_step, char{0});
        std::fill_n(words + end * g.col_step, (g.window_cols - end) * g.col_step, char{0});
        rows = inside && whole ? std::min(g.window_rows - row, a.h - input) : 1;
        if (!inside) continue;
        const std::int64_t c = pass * g.pass_words * in_word;
        const std::int64_t element = (tile.image * a.c * a.h + input * (nchw ? 1 : a.c)) * a.w +
                                     (left + from * g.input_col) * pixel +
                                     (tile.group * g.group_channels + c) * channel;
        const char* const x = static_cast<const char*>(task.tensors.x) + element * bytes;
        char* const first = words + from * g.col_step;
        const std::int64_t pixels = rows * (to - from);
        if (config_.joined != 0 && nchw) {
          if (bytes == 4)
            weave(reinterpret_cast<const float*>(x), a.c, channel, 1, pixels, reinterpret_cast<float*>(first),
                  a.c);
          else
            weave(reinterpret_cast<const Bf16*>(x), a.c, channel, 1, pixels, reinterpret_cast<Bf16*>(first),
                  a.c);
          continue;
        }
        if (config_.joined != 0 && bytes == 4 / in_word) {
          std::memcpy(first, x, static_cast<std::size_t>(pixels * g.col_step));
          continue;
        }
        // Joined, pixels are one of many channels: all of them lie side by side.
        const bool joined = config_.joined != 0;
        tensors_.read(
            {.type = a.dtype.x,
             .words = words_,
             .x = x,
             .pixel_step = g.input_col * pixel,
             .channel_step = channel,
             .pixels = joined ? 1 : pixels,
             .channels = joined ? pixels * a.c : std::min(g.words_of(pass) * in_word, g.group_channels - c),
             .to = reinterpret_cast<float*>(first),
             .to_step = g.col_step / kWord});
      }
  }

  // All of a tile's outputs of one block of output channels.
  void compute(const Task& task, const FilterBlock& block) const {
    const ImplicitGemmGeometry& g = geometry_;
    const OutputTile& tile = task.tile;
    const bool nhwc = problem_.layout == Layout::nhwc;
    const bool keeps_all = g.passes > 1 || !nhwc;
    const std::int64_t pixels = tile.pixels(), tiles = (pixels - 1) / config_.pixels + 1;
    const char* x = reinterpret_cast<const char*>(task.window);
    if (config_.staged == 0)
      x = static_cast<const char*>(task.tensors.x) +
          tile.group * g.group_channels * size_of(problem_.dtype.x);
    for (std::int64_t pass = 0; pass < g.passes; ++pass) {
      MultiplyArgs args{.x = x + pass * g.pass_step,
                        .pixels = nullptr,
                        .taps = taps_.data(),
                        .tap_count = g.taps,
                        .words = g.words_of(pass),
                        .half = g.half,
                        .weights = task.weights + tile.group * group_weights() + g.packed_offset(block, pass),
                        .sums = task.sums,
                        .sums_step = g.sums_step,
                        .accumulate = pass > 0,
                        .next_weights = nullptr,
                        .next_x = nullptr};
      // The next block's weights lie behind this one's: a line of them a tap of each register tile.
      const std::int64_t fetched = args.tap_count * kLine,
                         weights = args.tap_count * args.words * block.count * g.lanes;
      for (std::int64_t i = 0; i < tiles; ++i) {
        // Tiles have nearly equal sizes.
        const std::int64_t from = pixels * i / tiles, count = pixels * (i + 1) / tiles - from;
        args.pixels = task.inputs + from;
        args.sums = task.sums + (keeps_all ? from * g.sums_step : 0);
        args.next_weights = args.weights + (i * fetched < weights ? weights + i * fetched : 0);
        args.next_x = static_cast<const char*>(args.x) + (i + 1 < tiles ? 2 * count * kWord - 1 : 0);
        const auto& register_tile = multiply_[static_cast<std::size_t>(count - 1)];
        register_tile.kernels[static_cast<std::size_t>(block.count - 1)](args);
        if (nhwc && pass == g.passes - 1) store_pixels(task, block, from, count, args.sums);
      }
    }
    if (!nhwc) store_planes(task, block);
  }

  FinishArgs finish_args(const Task& task, const FilterBlock& block) const {
    const ImplicitGemmGeometry& g = geometry_;
    const std::int64_t first = block.first * g.lanes;  // index among the group's output channels
    return {.sums = task.sums,
            .sums_step = g.sums_step,
            .pixels = 0,
            .channels = std::min(block.count * g.lanes, g.group_filters - first),
            .bias = task.weights + bias_offset(task.tile.group * g.group_filters) + first,
            .residual = problem_.residual ? task.tensors.residual : nullptr,
            .y = task.tensors.y,
            .places = nullptr,
            .place = task.tile.group * g.group_filters + first,  // the first channel, until a pixel is chosen
            .plane = g.output_rows * g.output_cols,
            .problem = &problem_,
            .by_instruction = rounds_by_instruction_};
  }

  void store_pixels(const Task& task, const FilterBlock& block, std::int64_t from, std::int64_t count,
                    const float* sums) const {
    FinishArgs args = finish_args(task, block);
    std::array<std::int64_t, kMaxGemmPixels> places;
    for (std::int64_t j = 0; j < count; ++j)
      places[static_cast<std::size_t>(j)] = task.outputs[from + j] * problem_.k + args.place;
    args.sums = sums, args.pixels = count, args.places = places.data();
    tensors_.finish_pixels[static_cast<std::size_t>(problem_.activation)](args);
  }

  // Runs of pixels that lie side by side in a plane of y: rows, or whole tiles.
  void store_planes(const Task& task, const FilterBlock& block) const {
    const ImplicitGemmGeometry& g = geometry_;
    const OutputTile& tile = task.tile;
    FinishArgs args = finish_args(task, block);
    const std::int64_t channel = args.place;
    args.pixels = tile.cols == g.output_cols ? tile.rows * tile.cols : tile.cols;
    for (std::int64_t j = 0; j < tile.pixels(); j += args.pixels) {
      const std::int64_t image = task.outputs[j] / args.plane, pixel = task.outputs[j] % args.plane;
      args.sums = task.sums + j * g.sums_step;
      args.place = (image * problem_.k + channel) * args.plane + pixel;
      tensors_.finish_planes[static_cast<std::size_t>(problem_.activation)](args);
    }
  }

  void repair(const Tensors& tensors, const float* packed, const std::vector<float>& residual) const {
    std::vector<float> w(static_cast<std::size_t>(problem_.weight_elements())),
        bias(static_cast<std::size_t>(problem_.k));
    const std::int64_t in_filter = problem_.weight_elements() / problem_.k;
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      for_each_weight(k, [&](std::int64_t at, std::int64_t half, std::int64_t index) {
        w[static_cast<std::size_t>(k * in_filter + index)] =
            words_ == Words::bf16_pairs ? load(DType::bf16, packed + at, half) : packed[at];
      });
      bias[static_cast<std::size_t>(k)] = packed[bias_offset(k)];
    }
    const std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, problem_.input_elements());
    repair_padded_outputs(problem_,
                          {.x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()},
                          tensors.y);
  }

  const ConvProblem problem_;
  const ImplicitGemmConfig config_;
  const Words words_;
  const ImplicitGemmKernels& kernels_;
  MultiplyKernels multiply_;
  const TensorKernels& tensors_;
  const bool rounds_by_instruction_;
  const ImplicitGemmGeometry geometry_;
  const bool planes_;
  const int threads_;
  std::vector<std::int64_t> taps_;  // each one's offset in the window
};

}  // namespace

std::unique_ptr<Executable> implicit_gemm_executable(const ConvProblem& problem,
                                                     const ImplicitGemmConfig& config, int threads) {
  return std::make_unique<ImplicitGemmExecutable>(problem, config, threads);
}

}  // namespace convtune::cpu
