// See amx_executable.h.
#include "cpu/amx/amx_executable.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/amx/amx_window.h"
#include "cpu/elements.h"
#include "cpu/padding_repair.h"
#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "cpu/tensor_kernels.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kLineFloats = 16;

std::int64_t whole_lines(std::int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

class AmxExecutable final : public Executable {
 public:
  AmxExecutable(const ConvProblem& problem, const AmxConfig& config, int threads, int vector_bits,
                const AmxKernels& kernels)
      : problem_(problem),
        config_(config),
        geometry_(problem, config),
        kernels_(kernels),
        multiply_(geometry_.tail > 0 ? kernels.multiply_tails : kernels.multiply),
        tensors_(*tensor_kernels(vector_bits)),
        rounds_by_instruction_(vector_bits == 512 && rounds_by_instruction(problem)),
        threads_(threads) {
    for (const std::int64_t run : geometry_.runs) runs_.push_back(run * kElement);
    if (config.gathered == 0) return;
    pieces_ = gather_pieces(geometry_.runs, geometry_.window_run, tensors_.lanes);
    runs_ = {0};
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(flag_offset() + 1) * sizeof(float);
  }

  // Weights in the order of amx_geometry.h, zeros where there is no filter or channel; then the bias in the
  // order of the filters, then whether any weight is infinite or NaN.
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    auto* const to = static_cast<float*>(packed);
    std::fill_n(to, flag_offset() + 1, 0.0F);
    bool finite = true;
    for_each_weight([&](std::int64_t at, std::int64_t index) {
      const float value = load(DType::bf16, w, index);
      finite = finite && std::isfinite(value);
      store(DType::bf16, to, at, static_cast<double>(value));
    });
    for (std::int64_t k = 0; problem_.bias && k < problem_.k; ++k)
      to[bias_offset(k)] = load(problem_.dtype.bias, bias, k);
    to[flag_offset()] = finite ? 0 : 1;
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const AmxGeometry& g = geometry_;
    const auto* const weights = static_cast<const float*>(packed);
    // y may be the residual, which is read before it is written.
    const bool repairs = weights[flag_offset()] != 0 && config_.staged != 0;
    std::vector<float> residual;
    if (repairs && problem_.residual)
      residual = to_floats(problem_.dtype.y, tensors.residual, problem_.output_elements());
    parallel_tasks(threads_, g.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      const std::int64_t window = whole_lines(g.window / 2 + 1), gathered = whole_lines(g.gathered / 2);
      // What is gathered may be read from a vector before it.
      float* const memory = scratch.reserve(kLineFloats + window + gathered + g.sums) + kLineFloats;
      Task task{.tensors = tensors,
                .weights = weights,
                .window = reinterpret_cast<Bf16*>(memory),
                .gathered = reinterpret_cast<Bf16*>(memory + window),
                .sums = memory + window + gathered,
                .tile = {},
                .waiting = {}};
      kernels_.begin(static_cast<int>(g.tail));
      std::int64_t staged = -1;  // consecutive tasks share a tile and differ in their filters
      for (std::int64_t i = 0; tasks.next(i);) {
        task.tile = g.tile(i / g.filter_tasks);
        if (staged != task.tile.index && config_.staged != 0)
          stage_amx_window(problem_, g, tensors_, task.tile, tensors.x, task.window);
        staged = task.tile.index;
        const std::int64_t first = i % g.filter_tasks * g.task_blocks;
        const std::int64_t last = std::min(first + g.task_blocks, g.blocks);
        const AmxTile tile = task.tile;
        const std::int64_t rows = config_.gathered != 0 ? g.gathered_rows : tile.rows;
        for (std::int64_t row = 0; row < tile.rows; row += rows) {
          task.tile.row = tile.row + row;
          task.tile.rows = std::min(rows, tile.rows - row);
          if (config_.gathered != 0) gather(task, row);
          for (std::int64_t block = first; block < last; ++block) compute(task, g.block(block));
        }
      }
      store_waiting(task);
      kernels_.end();
      if (config_.stream != 0) tensors_.fence();
    });
    if (repairs) repair(tensors, weights, residual);
  }

 private:
  static constexpr std::int64_t kElement = sizeof(Bf16);

  // Sums of positions [begin, end) of a tile and a block, channels last.
  struct Sums {
    AmxTile tile;
    AmxBlock block;
    std::int64_t begin, end;
    const float* values;  // null: none
  };
  struct Task {
    const Tensors& tensors;
    const float* weights;
    Bf16 *window, *gathered;
    float* sums;
    AmxTile tile;
    // They are stored after the next products have begun: those take the processor's tiles, storing its
    // vectors, and sums can be read long after the last product of theirs was issued.
    Sums waiting;
    int half = 0;  // of the two buffers of sums that are used in turns
  };

  // Floats: a word is one.
  std::int64_t group_weights() const { return geometry_.filter_tiles * kAmxFilters * geometry_.words; }
  std::int64_t bias_offset(std::int64_t k) const {
    return problem_.groups * group_weights() +
           k / geometry_.group_filters * geometry_.filter_tiles * kAmxFilters + k % geometry_.group_filters;
  }
  std::int64_t flag_offset() const { return bias_offset(problem_.k); }

  // visit(element of the packed weights, of the weights) of all.
  template <class Visit>
  void for_each_weight(Visit&& visit) const {
    const AmxGeometry& g = geometry_;
    const std::int64_t taps = problem_.r * problem_.s;
    for (std::int64_t group = 0; group < g.groups; ++group)
      for (std::int64_t b = 0; b < g.blocks; ++b) {
        const AmxBlock block = g.block(b);
        for (std::int64_t f = 0; f < block.count * kAmxFilters; ++f) {
          const std::int64_t filter = block.first * kAmxFilters + f;
          if (filter >= g.group_filters) break;
          for (std::int64_t run = 0; run < g.run_count(); ++run)
            for (std::int64_t e = 0; e < g.run; ++e) {
              // Runs go on from tap to tap.
              const std::int64_t c = (run * g.run + e) % g.channels, tap = (run * g.run + e) / g.channels;
              if (c >= g.group_channels || tap >= taps) continue;
              const std::int64_t chunk = e / kAmxElements, in_chunk = e % kAmxElements;
              const std::int64_t words = (chunk < g.chunks ? kAmxElements : g.tail) / 2;
              const std::int64_t word =
                  (run * g.run + chunk * kAmxElements) / 2 * block.count +  // whole chunks before this
                  f / kAmxFilters * words + in_chunk / 2;
              const std::int64_t at = group * group_weights() + block.first * kAmxFilters * g.words +
                                      word * kAmxFilters + f % kAmxFilters;
              visit(2 * at + in_chunk % 2,
                    ((group * g.group_filters + filter) * g.group_channels + c) * taps + tap);
            }
        }
      }
  }

  // What each pixel of the tile's rows multiplies, whose first is so many rows behind the window's first.
  void gather(const Task& task, std::int64_t first) const {
    const AmxGeometry& g = geometry_;
    for (std::int64_t row = 0; row < task.tile.rows; ++row)
      tensors_.gather({.x = task.window + (first + row) * g.row,
                       .pieces = pieces_,
                       .pixel_step = g.position,
                       .pixels = task.tile.cols,
                       .to = task.gathered + row * task.tile.cols * g.gathered_step,
                       .to_step = g.gathered_step});
  }

  // All of a tile's outputs of one block of filters.
  void compute(Task& task, const AmxBlock& block) const {
    const AmxGeometry& g = geometry_;
    const AmxTile& tile = task.tile;
    const bool nhwc = problem_.layout == Layout::nhwc;
    const std::int64_t positions = g.positions(tile), tiles = (positions - 1) / kAmxPixels + 1;
    const std::int64_t most = config_.staged != 0
                                  ? config_.pixel_tiles
                                  : std::clamp<std::int64_t>(positions / kAmxPixels, 1, config_.pixel_tiles);
    const std::int64_t calls = (tiles - 1) / most + 1, width = block.count * kAmxFilters;
    const char* x = reinterpret_cast<const char*>(config_.gathered != 0 ? task.gathered : task.window);
    if (config_.staged == 0)
      x = static_cast<const char*>(task.tensors.x) +
          (((tile.image * g.input_rows + tile.row * problem_.stride_h) * g.input_cols +
            tile.col * problem_.stride_w) *
               problem_.c +
           tile.group * g.group_channels) *
              kElement;
    const char* weights = reinterpret_cast<const char*>(task.weights + tile.group * group_weights() +
                                                        block.first * kAmxFilters * g.words);
    const bool keeps_all = g.passes > 1 || !nhwc;
    for (std::int64_t pass = 0; pass < g.passes; ++pass) {
      const std::int64_t first_run = pass * g.pass_runs;
      AmxArgs args{.x = nullptr,
                   .position_bytes = g.step() * kElement,
                   .runs = runs_.data() + first_run,
                   .run_count = std::min(g.pass_runs, g.run_count() - first_run),
                   .chunks = g.chunks,
                   .tail = g.tail,
                   .weights = weights + first_run * g.run * width * kElement,
                   .sums = nullptr,
                   .accumulate = pass > 0};
      for (std::int64_t i = 0; i < calls; ++i) {
        const std::int64_t from = tiles * i / calls, count = tiles * (i + 1) / calls - from;
        // x may end with the last position; behind a window there is room.
        const std::int64_t begin = from * kAmxPixels, end = std::min((from + count) * kAmxPixels, positions);
        const std::int64_t first =
            config_.staged != 0 ? begin : std::max<std::int64_t>(end - count * kAmxPixels, 0);
        args.x = x + first * args.position_bytes;
        args.sums = task.sums + (keeps_all ? begin * width : task.half * g.sums / 2);
        multiply_[static_cast<std::size_t>(count - 1)][static_cast<std::size_t>(block.count - 1)](args);
        if (!nhwc || pass != g.passes - 1) continue;
        const Sums sums{tile, block, begin, end, args.sums + (begin - first) * width};
        if (keeps_all) {
          store_pixels(task, sums);
        } else {
          store_waiting(task);
          task.waiting = sums;
          task.half = 1 - task.half;
        }
      }
    }
    if (!nhwc) store_planes(task, block);
  }

  FinishArgs finish_args(const Task& task, const AmxTile& tile, const AmxBlock& block) const {
    const AmxGeometry& g = geometry_;
    const std::int64_t first = block.first * kAmxFilters;  // of the group's filters
    return {.sums = task.sums,
            .sums_step = block.count * kAmxFilters,
            .pixels = 0,
            .channels = std::min(block.count * kAmxFilters, g.group_filters - first),
            .bias = task.weights + bias_offset(tile.group * g.group_filters) + first,
            .residual = problem_.residual ? task.tensors.residual : nullptr,
            .y = task.tensors.y,
            .places = nullptr,
            .place = tile.group * g.group_filters + first,  // the first channel, until a pixel is chosen
            .plane = g.output_rows * g.output_cols,
            .problem = &problem_,
            .by_instruction = rounds_by_instruction_,
            .stream = config_.stream != 0};
  }

  void store_waiting(Task& task) const {
    if (task.waiting.values != nullptr) store_pixels(task, task.waiting);
    task.waiting.values = nullptr;
  }

  // The pixels among the positions, row by row.
  void store_pixels(const Task& task, const Sums& sums) const {
    const AmxGeometry& g = geometry_;
    const AmxTile& tile = sums.tile;
    const std::int64_t begin = sums.begin, end = sums.end;
    FinishArgs args = finish_args(task, tile, sums.block);
    const std::int64_t pitch = g.pitch_of(tile);
    std::array<std::int64_t, kAmxSums * kAmxPixels> places;
    for (std::int64_t row = begin / pitch; row * pitch < end; ++row) {
      const std::int64_t from = std::max(begin, row * pitch), to = std::min(end, row * pitch + tile.cols);
      if (from >= to) continue;
      const std::int64_t pixel =
          (tile.image * g.output_rows + tile.row + row) * g.output_cols + tile.col + from - row * pitch;
      for (std::int64_t j = 0; j < to - from; ++j)
        places[static_cast<std::size_t>(j)] = (pixel + j) * problem_.k + args.place;
      args.sums = sums.values + (from - begin) * args.sums_step;
      args.pixels = to - from, args.places = places.data();
      tensors_.finish_pixels[static_cast<std::size_t>(problem_.activation)](args);
    }
  }

  // Runs of pixels that lie side by side in a plane of y: rows, or all of them.
  void store_planes(const Task& task, const AmxBlock& block) const {
    const AmxGeometry& g = geometry_;
    const AmxTile& tile = task.tile;
    FinishArgs args = finish_args(task, tile, block);
    const std::int64_t pitch = g.pitch_of(tile);
    const std::int64_t channel = args.place;
    const bool whole = pitch == tile.cols && tile.cols == g.output_cols;
    args.pixels = whole ? tile.rows * tile.cols : tile.cols;
    for (std::int64_t row = 0; row < tile.rows; row += whole ? tile.rows : 1) {
      args.sums = task.sums + row * pitch * args.sums_step;
      args.place =
          (tile.image * problem_.k + channel) * args.plane + (tile.row + row) * g.output_cols + tile.col;
      tensors_.finish_planes[static_cast<std::size_t>(problem_.activation)](args);
    }
  }

  void repair(const Tensors& tensors, const float* packed, const std::vector<float>& residual) const {
    std::vector<float> w(static_cast<std::size_t>(problem_.weight_elements())),
        bias(static_cast<std::size_t>(problem_.k));
    for_each_weight([&](std::int64_t at, std::int64_t index) {
      w[static_cast<std::size_t>(index)] = load(DType::bf16, packed, at);
    });
    for (std::int64_t k = 0; k < problem_.k; ++k) bias[static_cast<std::size_t>(k)] = packed[bias_offset(k)];
    const std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, problem_.input_elements());
    repair_padded_outputs(problem_,
                          {.x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()},
                          tensors.y);
  }

  const ConvProblem problem_;
  const AmxConfig config_;
  const AmxGeometry geometry_;
  const AmxKernels& kernels_;
  const std::array<std::array<AmxKernel, kAmxSums>, kAmxSums>& multiply_;
  const TensorKernels& tensors_;
  const bool rounds_by_instruction_;
  const int threads_;
  std::vector<std::int64_t> runs_;  // where each begins in the window, in bytes
  std::vector<std::vector<GatherPiece>> pieces_;
};

}  // namespace

std::unique_ptr<Executable> amx_executable(const ConvProblem& problem, const AmxConfig& config, int threads,
                                           int vector_bits, const AmxKernels& kernels) {
  return std::make_unique<AmxExecutable>(problem, config, threads, vector_bits, kernels);
}

}  // namespace convtune::cpu
