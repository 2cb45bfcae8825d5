// direct_depthwise: filters of one channel each, or channels last of a few, of f32 or bf16 tensors. x is read
// where it lies: channels first, in register tiles of rows by columns; channels last, channels in the lanes
// (depthwise_geometry.h).
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct_depthwise/depthwise_candidates.h"
#include "cpu/algorithms/direct_depthwise/depthwise_geometry.h"
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/algorithms/direct_depthwise/depthwise_lined_pixels.h"
#include "cpu/algorithms/direct_depthwise/depthwise_pixels.h"
#include "cpu/base/caches.h"
#include "cpu/base/parallel.h"
#include "cpu/launch/cpu_algorithm.h"
#include "cpu/reference/padding_repair.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/line_blocks.h"
#include "cpu/tile/line_buffer.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/tensor_kernels.h"
#include "problem/config_fields.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

// T: the element type of all tensors.
template <class T>
class DepthwiseExecutable final : public Executable {
 public:
  DepthwiseExecutable(const ConvProblem& problem, const DepthwiseConfig& config, const DeviceInfo& on)
      : problem_(problem),
        config_(config),
        epilogue_(epilogue_of(problem)),
        kernels_(*depthwise_kernels<T>(config.vector_bits)),
        geometry_(problem, config),
        threads_(on.units) {
    if (geometry_.channels_last)
      pixels_.emplace(problem_, config_, geometry_,
                      static_cast<std::int64_t>(sizeof(T)) * problem.input_elements() > l2_bytes_of(on));
    else
      make_row_tiles();
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(geometry_.packed_flag + 1) * sizeof(float);
  }

  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    auto* const to = static_cast<float*>(packed);
    if (geometry_.channels_last)
      pack_pixels(w, bias, to);
    else
      pack_planes(w, bias, to);
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const auto* const weights = static_cast<const float*>(packed);
    // Channels last, padding is never multiplied. y may be the residual, which is read before it is written.
    const bool repairs = !geometry_.channels_last && weights[geometry_.packed_flag] != 0;
    std::vector<float> residual;
    if (repairs && problem_.residual)
      residual = to_floats(problem_.dtype.y, tensors.residual, problem_.output_elements());
    const std::int64_t cut = LinedPixels<T>::cut_of(geometry_, tensors.x, tensors.y);
    parallel_tasks(threads_, geometry_.tasks, [&](TaskQueue& tasks) {
      const DepthwiseGeometry& g = geometry_;
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(g.memory);  // room for `lines` or `lined`
      const TensorKernels& kernels = *tensor_kernels(config_.vector_bits);
      LineBuffer<T> lines(kernels, memory);
      std::optional<LinedPixels<T>> lined;
      if (cut != 0) lined.emplace(*pixels_, problem_, g, kernels, cut, config_.stream != 0, memory);
      for (std::int64_t i = 0; tasks.next(i);) {
        const std::int64_t of_plane = g.row_tasks * g.col_tasks,
                           row = i % of_plane / g.col_tasks * g.task_rows,
                           col = i % g.col_tasks * g.task_cols;
        const Task task{static_cast<const T*>(tensors.x),
                        problem_.residual ? static_cast<const T*>(tensors.residual) : nullptr,
                        static_cast<T*>(tensors.y),
                        weights,
                        i / of_plane,
                        row,
                        std::min(g.task_rows, g.output_rows - row),
                        col,
                        std::min(col + g.task_cols, g.output_cols)};
        if (lined)
          lined->compute(task);
        else if (g.channels_last)
          pixels_->compute(task, lines);
        else
          compute_plane(task, lines);
      }
      lines.finish();
      if (lined) lined->finish();
      if (config_.stream != 0) tensor_kernels(config_.vector_bits)->fence();
    });
    if (repairs) repair(tensors, weights, residual);
  }

 private:
  using Task = DepthwiseTask<T>;

  void pack_planes(const void* w, const void* bias, float* packed) const {
    const DType type = problem_.dtype.w;
    bool finite = true;
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      for (std::int64_t t = 0; t < geometry_.taps; ++t) {
        const float weight = load(type, w, k * geometry_.taps + t);
        finite = finite && std::isfinite(weight);
        packed[geometry_.packed_weight(k, t)] = weight;
      }
      packed[geometry_.packed_bias + k] = bias ? load(type, bias, k) : 0;
    }
    packed[geometry_.packed_flag] = finite ? 0 : 1;
  }

  // Padding is never multiplied there: nothing is to be repaired.
  void pack_pixels(const void* w, const void* bias, float* packed) const {
    const DepthwiseGeometry& g = geometry_;
    const DType type = problem_.dtype.w;
    const bool pairs = g.parts == 2 && g.group_channels > 1;
    float *to = packed, *to_bias = packed + g.packed_bias;
    const auto each_lane = [&](std::int64_t vector, auto visit) {
      for (std::int64_t part = 0; part < g.parts; ++part)
        for (std::int64_t lane = 0; lane < g.lanes; ++lane) visit(g.channel(vector, part, lane));
    };
    for (std::int64_t vector = 0; vector < g.vectors; ++vector) {
      for (std::int64_t r = 0; r < problem_.t * problem_.r; ++r)  // rows of all frames
        for (std::int64_t word = 0; word < g.words; ++word)
          for (std::int64_t s = 0; s < problem_.s; ++s)
            each_lane(vector, [&](std::int64_t k) {
              const auto weight = [&](std::int64_t channel) {
                return load(type, w, (k * g.group_channels + channel) * g.taps + r * problem_.s + s);
              };
              if (pairs) {
                store(DType::bf16, to, 0, weight(2 * word));
                store(DType::bf16, to++, 1, weight(2 * word + 1));
              } else {
                *to++ = weight(word);
              }
            });
      each_lane(vector, [&](std::int64_t k) { *to_bias++ = bias ? load(type, bias, k) : 0; });
    }
    packed[g.packed_flag] = 0;
  }

  void compute_plane(const Task& task, LineBuffer<T>& lines) const {
    const ConvProblem& a = problem_;
    const DepthwiseGeometry& g = geometry_;
    const std::int64_t volume = task.plane / g.output_frames, k = volume % a.k;
    const TapsInside frames = frames_of_outputs(a, task.plane % g.output_frames);
    const float* const packed = task.packed;
    PlaneArgs<T> args{};
    args.x = task.x + (volume / (a.k / a.c) * a.d + frames.at) * a.h * a.w;
    args.frames = frames.count, args.frame_step = a.dilation_d * a.h * a.w;
    args.height = a.h, args.width = a.w;
    args.filter_rows = a.r, args.filter_cols = a.s;
    args.dilation_h = a.dilation_h, args.dilation_w = a.dilation_w;
    args.weights = packed + g.packed_weight(k, 0) + frames.from * g.frame_taps;
    args.bias = packed[g.packed_bias + k];
    args.epilogue = epilogue_;
    args.y_step = g.output_cols;
    for (std::int64_t row = task.row, end = task.row + task.rows; row < end;) {
      args.rows = end - row;
      const RowTile& tile = tile_for(args.rows);
      args.first_row = row * a.stride_h - a.pad_top;
      const std::int64_t line = (task.plane * g.output_rows + row) * g.output_cols;
      // Strips of a row that stand beside each other are whole lines where y is (depthwise_accepts).
      const bool begins_line = reinterpret_cast<std::uintptr_t>(task.y + line) % kCacheLineBytes == 0;
      const bool buffered =
          g.buffered_rows > 0 && tile.blocks.size() > 1 && !(begins_line && tile.whole_lines);
      if (buffered) args.rows = std::min({args.rows, tile.rows, g.buffered_rows});
      T* const y = buffered ? lines.place_of(task.y + line) : task.y + line;
      for (const Block& block : tile.blocks) {
        const std::int64_t col = task.col + block.col;
        if (col >= task.end_col) break;
        args.first_col = col * a.stride_w - a.pad_left;
        args.count = task.end_col - col;
        args.y = y + col;
        args.residual = task.residual ? task.residual + line + col : nullptr;
        args.stream = config_.stream != 0 && !buffered && (tile.blocks.size() == 1 || begins_line);
        block.kernel(args);
      }
      if (buffered) lines.put(args.rows * g.output_cols);
      row += buffered ? args.rows : tile.rows;
    }
  }

  // The columns of a task's rows are computed in blocks of nearly equal width.
  struct Block {
    std::int64_t col;
    PlaneKernel<T> kernel;
  };
  struct RowTile {
    std::int64_t rows;
    bool whole_lines;  // each block stores those of a plane that begins at one
    std::vector<Block> blocks;
  };

  // The register tiles of the most rows that the config allows and of fewer: what is left at an image's end.
  void make_row_tiles() {
    const std::int64_t columns = kernels_.lanes * accumulators<T>(problem_.stride_w),
                       vectors = (geometry_.task_cols - 1) / columns + 1;
    for (int rows = config_.tile; rows >= 1 || row_tiles_.empty(); rows /= 2) {
      const PlaneTile tile = plane_tile(problem_, rows);
      const PlaneKernels<T>* const found = kernels_.planes(tile);
      if (found == nullptr) continue;
      // Past the caches strips are whole lines, each with all of its rows: halves of a line would be stored
      // far apart. Where the widest is none, rows are buffered.
      const std::int64_t line = kCacheLineBytes / static_cast<std::int64_t>(sizeof(T));
      const bool whole_lines = geometry_.output_cols % line == 0 && found->vectors * columns % line == 0;
      const std::int64_t unit = config_.stream != 0 && (whole_lines || geometry_.buffered_rows == 0)
                                    ? line_unit_of(geometry_.output_cols, columns, sizeof(T))
                                    : 1;
      const LineBlocks blocks(vectors, found->vectors, unit);
      RowTile& made = row_tiles_.emplace_back(RowTile{
          rows == kAllRows ? geometry_.task_rows : rows, whole_lines, {}});  // clang 14 wants its name
      for (std::int64_t b = 0; b < blocks.count; ++b)
        made.blocks.push_back(
            {blocks.first(b) * columns, found->of_vectors[static_cast<std::size_t>(blocks.width_of(b) - 1)]});
    }
  }
  // The smallest that takes all rows, or the largest.
  const RowTile& tile_for(std::int64_t rows) const {
    std::size_t i = 0;
    while (i + 1 < row_tiles_.size() && row_tiles_[i + 1].rows >= rows) ++i;
    return row_tiles_[i];
  }

  void repair(const Tensors& tensors, const float* packed, const std::vector<float>& residual) const {
    std::vector<float> w(static_cast<std::size_t>(problem_.weight_elements()));
    for (std::int64_t k = 0; k < problem_.k; ++k)
      for (std::int64_t t = 0; t < geometry_.taps; ++t)
        w[static_cast<std::size_t>(k * geometry_.taps + t)] = packed[geometry_.packed_weight(k, t)];
    const std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, problem_.input_elements());
    repair_padded_outputs(
        problem_,
        {.x = x.data(), .w = w.data(), .bias = packed + geometry_.packed_bias, .residual = residual.data()},
        tensors.y);
  }

  const ConvProblem problem_;
  const DepthwiseConfig config_;
  const Epilogue epilogue_;
  const DepthwiseKernels<T>& kernels_;
  const DepthwiseGeometry geometry_;
  const int threads_;
  std::vector<RowTile> row_tiles_;
  std::optional<DepthwisePixels<T>> pixels_;  // channels last
};

}  // namespace

const Algorithm& direct_depthwise() {
  return once([] {
    return CpuAlgorithmOf<DepthwiseConfig>({
        .name = "direct_depthwise",
        .supports = depthwise_supports,
        .memory = depthwise_memory,
        .smallest = [](const ConvProblem&, const DeviceInfo&) { return DepthwiseConfig{.stream = 0}; },
        .accepts = depthwise_accepts,
        .candidates = depthwise_candidates,
        .cycles = depthwise_cycles,
        .executable = [](const ConvProblem& problem, const DeviceInfo& device,
                         const DepthwiseConfig& config) -> std::unique_ptr<Executable> {
          if (problem.dtype.x == DType::bf16)
            return std::make_unique<DepthwiseExecutable<Bf16>>(problem, config, device);
          return std::make_unique<DepthwiseExecutable<float>>(problem, config, device);
        },
        .has_frames = true,
    });
  });
}

}  // namespace convtune::cpu
