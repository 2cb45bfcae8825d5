// See amx_executable.h.
#include "cpu/algorithms/amx/amx_executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "cpu/algorithms/amx/amx_weights.h"
#include "cpu/algorithms/amx/amx_window.h"
#include "cpu/base/parallel.h"
#include "cpu/tile/elements.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/tensor_kernels.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

class AmxExecutable final : public Executable {
 public:
  AmxExecutable(const ConvProblem& problem, const AmxConfig& config, int threads, int vector_bits,
                const AmxKernels& kernels)
      : problem_(problem),
        config_(config),
        geometry_(problem, config),
        weights_(problem_, geometry_),
        kernels_(kernels),
        multiply_(geometry_.tail > 0 ? kernels.multiply_tails : kernels.multiply),
        tensors_(*tensor_kernels(vector_bits)),
        rounds_by_instruction_(vector_bits == 512 && rounds_by_instruction(problem)),
        threads_(threads) {
    for (const std::int64_t run : geometry_.runs) runs_.push_back(run * kElement);
    for (std::int64_t i = 0; i < geometry_.filter_blocks; ++i) blocks_.push_back(geometry_.block(i));
    if (config.gathered == 0) return;
    vectors_ = gather_vectors(geometry_.runs, geometry_.window_run, geometry_.run, tensors_.lanes);
    runs_ = {0};
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(weights_.floats()) * sizeof(float);
  }
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    weights_.pack(w, bias, static_cast<float*>(packed));
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const AmxGeometry& g = geometry_;
    const auto* const weights = static_cast<const float*>(packed);
    // y may be the residual, which is read before it is written.
    const bool repairs = !weights_.finite(weights);
    std::vector<float> residual;
    if (repairs && problem_.residual)
      residual = to_floats(problem_.dtype.y, tensors.residual, problem_.output_elements());
    parallel_tasks(threads_, g.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(g.memory);
      Task task{.self = *this,
                .tensors = tensors,
                .weights = weights,
                .window = reinterpret_cast<Bf16*>(memory + g.window),
                .gathered = reinterpret_cast<Bf16*>(memory + g.gathered),
                .sums = memory + g.sums,
                .tile = {},
                .waiting = {},
                .next = {}};
      kernels_.begin(static_cast<int>(g.tail));
      std::int64_t staged = -1;  // consecutive tasks share a tile and differ in their filters
      for (std::int64_t i = 0; tasks.next(i);) {
        task.tile = g.tile(i / g.filter_tasks);
        if (staged != task.tile.index)
          stage_amx_window(problem_, g, tensors_, task.tile, tensors.x, task.window);
        staged = task.tile.index;
        const auto [first, last] = g.blocks_of(i);
        if (g.panel > 0)
          compute_gathered(task, first, last);
        else
          for (std::int64_t block = first; block < last; ++block)
            compute(task, blocks_[static_cast<std::size_t>(block)]);
      }
      store_waiting(task);
      kernels_.end();
      if (config_.stream == 1) tensors_.fence();
    });
    if (repairs) weights_.repair(tensors, weights, residual);
  }

 private:
  static constexpr std::int64_t kElement = sizeof(Bf16);

  // Sums of positions [begin, end) of a tile and a block.
  struct Sums {
    OutputTile tile;
    FilterBlock block;
    std::int64_t begin, end;
    const float* values;  // null: none
  };
  // The pixels of a tile on their way into panels: a register tile of them after the other, chunk by chunk.
  struct Gathering {
    std::int64_t left = 0;              // pixels of the panel that are not complete
    Bf16* to = nullptr;                 // the register tile's first
    std::int64_t chunk = 0;             // its next
    std::int64_t every = 1, pause = 1;  // steps from chunk to chunk, and until the next one
    std::int64_t row = 0, col = 0;      // the next pixel: its row's offset in the window, and its column
    std::array<std::int32_t, kAmxSums * kAmxPixels> offsets{};  // the register tile's pixels in the window
  };
  struct Task {
    const AmxExecutable& self;
    const Tensors& tensors;
    const float* weights;
    Bf16 *window, *gathered;
    float* sums;
    OutputTile tile;
    // They are stored during the next products: those take the processor's tiles, storing its vectors.
    Sums waiting;
    std::int64_t parts = 0, stored = 0, each_step = 0;  // parts of `waiting`: all, stored, stored in a step
    int half = 0;                                       // the buffer of sums in use: two take turns
    Gathering next;
  };

  // A chunk of what each pixel of the next register tile multiplies.
  void gather_chunk(Task& task) const {
    const AmxGeometry& g = geometry_;
    Gathering& next = task.next;
    const std::int64_t pixels = std::min(next.left, g.call);
    if (next.chunk == 0)
      for (std::int64_t j = 0; j < pixels; ++j) {
        next.offsets[static_cast<std::size_t>(j)] =
            static_cast<std::int32_t>(next.row + next.col * g.position);
        if (++next.col == task.tile.cols) next.col = 0, next.row += g.row;
      }
    for (std::int64_t v = 0; v < chunk_vectors_; ++v)
      tensors_.gather({.x = task.window,
                       .offsets = next.offsets.data(),
                       .vector = &vectors_[static_cast<std::size_t>(next.chunk * chunk_vectors_ + v)],
                       .pixels = pixels,
                       .to = next.to + next.chunk * g.chunk_step() + v * 2 * tensors_.lanes,
                       .to_step = g.step()});
    if (++next.chunk < g.chunks) return;
    next.chunk = 0, next.left -= pixels, next.to += g.call * g.run;
  }

  // Work for vectors while tiles multiply: sums of the call before are stored, and pixels of the next panel
  // are gathered.
  static void meanwhile(void* context) {
    Task& task = *static_cast<Task*>(context);
    if (task.waiting.values != nullptr) task.self.store_parts(task, task.each_step);
    if (task.next.left == 0 || --task.next.pause > 0) return;
    task.next.pause = task.next.every;
    task.self.gather_chunk(task);
  }

  // One call: some tiles of positions, and a block. Its sums wait then.
  void multiply(Task& task, AmxArgs& args, std::int64_t count, const Sums& sums) const {
    const std::int64_t steps = args.run_count * (args.chunks + (args.tail > 0 ? 1 : 0));
    task.each_step = task.parts <= steps ? 1 : (task.parts - 1) / steps + 1;
    args.meanwhile = meanwhile, args.context = &task;
    multiply_[static_cast<std::size_t>(count - 1)][static_cast<std::size_t>(sums.block.count - 1)](args);
    task.waiting = sums, task.stored = 0;
    task.parts = parts(sums);
    task.half = 1 - task.half;
  }

  // All of a tile's outputs of blocks [first, last), a panel of pixels after the other.
  void compute_gathered(Task& task, std::int64_t first, std::int64_t last) const {
    const AmxGeometry& g = geometry_;
    const std::int64_t pixels = task.tile.rows * task.tile.cols;
    task.next = {.left = std::min(g.panel, pixels), .to = task.gathered};
    while (task.next.left > 0) gather_chunk(task);
    task.next.every = last - first;
    for (std::int64_t panel = 0, half = 0; panel < pixels; panel += g.panel, half = 1 - half) {
      const std::int64_t end = std::min(panel + g.panel, pixels);
      task.next.left = std::min(g.panel, pixels - end);
      task.next.to = task.gathered + (1 - half) * g.panel * g.run;
      task.next.pause = 1;
      for (std::int64_t i = first; i < last; ++i) {
        const FilterBlock& block = blocks_[static_cast<std::size_t>(i)];
        AmxArgs args = amx_args(task, block);
        args.x = reinterpret_cast<const char*>(task.gathered + half * g.panel * g.run);
        for (std::int64_t begin = panel; begin < end; begin += g.call) {
          const std::int64_t until = std::min(begin + g.call, end);
          args.sums = task.sums + task.half * g.sums_floats / 2;
          multiply(task, args, (until - begin + kAmxPixels - 1) / kAmxPixels,
                   {task.tile, block, begin, until, args.sums});
          args.x += g.call * g.run * kElement;
        }
      }
    }
  }

  // Arguments of a call for all runs, from the first position on.
  AmxArgs amx_args(const Task& task, const FilterBlock& block) const {
    const AmxGeometry& g = geometry_;
    return {.x = nullptr,
            .position_bytes = g.step() * kElement,
            .chunk_bytes = g.chunk_step() * kElement,
            .runs = runs_.data(),
            .run_count = g.run_count,
            .chunks = g.chunks,
            .tail = g.tail,
            .weights = reinterpret_cast<const char*>(task.weights + weights_.of(task.tile.group, block)),
            .sums = nullptr,
            .meanwhile = nullptr,
            .context = nullptr};
  }

  // All of a tile's outputs of one block of filters, read in the window.
  void compute(Task& task, const FilterBlock& block) const {
    const AmxGeometry& g = geometry_;
    const OutputTile& tile = task.tile;
    const std::int64_t positions = g.positions(tile), tiles = (positions - 1) / kAmxPixels + 1;
    const std::int64_t calls = (tiles - 1) / config_.pixel_tiles + 1, width = block.count * kAmxFilters;
    AmxArgs args = amx_args(task, block);
    for (std::int64_t i = 0; i < calls; ++i) {
      const std::int64_t from = tiles * i / calls, count = tiles * (i + 1) / calls - from;
      const std::int64_t begin = from * kAmxPixels, end = std::min((from + count) * kAmxPixels, positions);
      args.x = reinterpret_cast<const char*>(task.window) + begin * args.position_bytes;
      args.sums = task.sums + (g.keeps_all ? begin * width : task.half * g.sums_floats / 2);
      multiply(task, args, count, {tile, block, begin, end, args.sums});
      if (g.keeps_all) task.waiting.values = nullptr;
    }
    if (g.keeps_all) store_planes(task, {tile, block, 0, positions, task.sums}, 0, block.count);
  }

  FinishArgs finish_args(const Task& task, const OutputTile& tile, const FilterBlock& block) const {
    const AmxGeometry& g = geometry_;
    const std::int64_t first = block.first * kAmxFilters;  // index among the group's filters
    return {.sums = nullptr,
            .sums_step = block.count * kAmxFilters,
            .pixels = 0,
            .channels = std::min(block.count * kAmxFilters, g.group_filters - first),
            .bias = task.weights + weights_.bias(tile.group, first),
            .residual = problem_.residual ? task.tensors.residual : nullptr,
            .y = task.tensors.y,
            .places = nullptr,
            .place = tile.group * g.group_filters + first,  // the first channel, until a pixel is chosen
            .plane = g.output_rows * g.output_cols,
            .problem = &problem_,
            .by_instruction = rounds_by_instruction_,
            .stream = config_.stream == 1,
            .ahead = config_.stream == 2 ? ahead(block) : 0};
  }

  // Channels last, so many pixels' channels of a block lie ahead; else two lines of each plane.
  std::int64_t ahead(const FilterBlock& block) const {
    constexpr std::int64_t kElements = 2048;
    return problem_.layout == Layout::nhwc ? kElements / (block.count * kAmxFilters) * problem_.k : 64;
  }

  // Sums are stored in parts: some pixels of all channels, or whole lines of some planes.
  static constexpr std::int64_t kPartPixels = 16;
  std::int64_t parts(const Sums& sums) const {
    return problem_.layout == Layout::nhwc ? (sums.end - sums.begin + kPartPixels - 1) / kPartPixels
                                           : sums.block.count;
  }
  // The next parts of those that wait.
  void store_parts(Task& task, std::int64_t count) const {
    const std::int64_t from = task.stored, to = std::min(from + count, task.parts);
    Sums part = task.waiting;
    task.stored = to;
    if (to == task.parts) task.waiting.values = nullptr;
    if (problem_.layout == Layout::nchw) return store_planes(task, part, from, to);
    part.end = std::min(part.end, part.begin + to * kPartPixels);
    part.begin += from * kPartPixels;
    part.values += from * kPartPixels * part.block.count * kAmxFilters;
    store_pixels(task, part);
  }

  void store_waiting(Task& task) const {
    if (task.waiting.values != nullptr) store_parts(task, task.parts);
  }

  // The pixels among the positions, row by row; whole rows follow each other.
  void store_pixels(const Task& task, const Sums& sums) const {
    const AmxGeometry& g = geometry_;
    const OutputTile& tile = sums.tile;
    FinishArgs args = finish_args(task, tile, sums.block);
    const bool whole = g.pitch_of(tile) == tile.cols && tile.cols == g.output_cols;
    const std::int64_t pitch = whole ? sums.end : g.pitch_of(tile), cols = whole ? sums.end : tile.cols;
    std::array<std::int64_t, kAmxSums * kAmxPixels> places;
    for (std::int64_t row = whole ? 0 : sums.begin / pitch; row * pitch < sums.end; ++row) {
      const std::int64_t from = std::max(sums.begin, row * pitch),
                         to = std::min(sums.end, row * pitch + cols);
      if (from >= to) continue;
      const std::int64_t pixel =
          (tile.image * g.output_rows + tile.row + row) * g.output_cols + tile.col + from - row * pitch;
      for (std::int64_t j = 0; j < to - from; ++j)
        places[static_cast<std::size_t>(j)] = (pixel + j) * problem_.k + args.place;
      args.sums = sums.values + (from - sums.begin) * args.sums_step;
      args.pixels = to - from, args.places = places.data();
      tensors_.finish_pixels[static_cast<std::size_t>(problem_.activation)](args);
    }
  }

  // Stores some tiles of filters, whose runs of pixels lie side by side in planes of y: rows, or all.
  void store_planes(const Task& task, const Sums& sums, std::int64_t from, std::int64_t to) const {
    const AmxGeometry& g = geometry_;
    const OutputTile& tile = sums.tile;
    const std::int64_t pitch = g.pitch_of(tile), first = from * kAmxFilters;
    FinishArgs args = finish_args(task, tile, sums.block);
    const std::int64_t channel = tile.image * problem_.k + args.place + first;
    args.channels = std::min(args.channels, to * kAmxFilters) - first, args.bias += first;
    const bool whole = pitch == tile.cols && tile.cols == g.output_cols;
    for (std::int64_t at = sums.begin; at < sums.end;) {
      const std::int64_t row = at / pitch, col = at - row * pitch;
      const std::int64_t count = whole ? sums.end - at : std::min(sums.end - at, tile.cols - col);
      args.sums = sums.values + (at - sums.begin) * args.sums_step + first;
      args.pixels = count;
      args.place = channel * args.plane + (tile.row + row) * g.output_cols + tile.col + col;
      if (count > 0) tensors_.finish_planes[static_cast<std::size_t>(problem_.activation)](args);
      at = whole ? sums.end : (row + 1) * pitch;
    }
  }

  const ConvProblem problem_;
  const AmxConfig config_;
  const AmxGeometry geometry_;
  const AmxWeights weights_;
  const AmxKernels& kernels_;
  const std::array<std::array<AmxKernel, kAmxSums>, kAmxSums>& multiply_;
  const TensorKernels& tensors_;
  const bool rounds_by_instruction_;
  const int threads_;
  std::vector<std::int64_t> runs_;  // offsets in the window at which runs begin, in bytes
  std::vector<FilterBlock> blocks_;
  std::vector<GatherVector> vectors_;
  const std::int64_t chunk_vectors_ = kAmxElements / (2 * tensors_.lanes);
};

}  // namespace

std::unique_ptr<Executable> amx_executable(const ConvProblem& problem, const AmxConfig& config, int threads,
                                           int vector_bits, const AmxKernels& kernels) {
  return std::make_unique<AmxExecutable>(problem, config, threads, vector_bits, kernels);
}

}  // namespace convtune::cpu
