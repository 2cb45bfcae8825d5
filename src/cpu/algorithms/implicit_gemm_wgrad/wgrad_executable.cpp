// See wgrad_executable.h.
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_executable.h"

#include <algorithm>
#include <vector>

#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_candidates.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.h"
#include "cpu/base/parallel.h"
#include "cpu/tile/tensor_kernels.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

using std::int64_t;

// The outputs of a row that a tap at `shift` from them finds inside the image: [first, first + count).
struct Outputs {
  int64_t first, count;
};
Outputs outputs_within(int64_t shift, int64_t stride, int64_t outputs, int64_t extent) {
  const int64_t first = shift < 0 ? ceil_div(-shift, stride) : 0;
  const int64_t end = shift < extent ? std::min(outputs, (extent - 1 - shift) / stride + 1) : 0;
  return {first, std::max<int64_t>(end - first, 0)};
}

class WgradExecutable final : public Executable {
 public:
  WgradExecutable(const ConvProblem& problem, const WgradConfig& config, int threads)
      : problem_(problem),
        geometry_(wgrad_geometry(problem, config)),
        filters_fill_vectors_(config.words != 0),
        threads_(threads),
        kernels_(*wgrad_kernels(config.vector_bits)),
        tensors_(*tensor_kernels(config.vector_bits)) {
    const auto vectors = static_cast<std::size_t>(config.vectors - 1);
    kernel_ = geometry_.depthwise ? kernels_.each.at(vectors) : kernels_.multiply.at(vectors);
  }

  std::size_t packed_bytes() const override { return 1; }
  void pack(const void*, const void*, void*, Stream) const override {}

  void run(const Tensors& tensors, const void*, Stream) const override {
    const WgradGeometry& g = geometry_;
    const int64_t weights = problem_.weight_elements(), of_range = weights + problem_.k;
    std::vector<float> partial(static_cast<std::size_t>(g.splits * of_range));
    parallel_tasks(threads_, g.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(g.memory);
      for (int64_t i = 0; tasks.next(i);) {
        const Task task = task_of(i, memory);
        compute(task, tensors);
        write(task, partial.data() + task.split * of_range, partial.data() + task.split * of_range + weights);
      }
    });
    const auto sum_of = [&](int64_t i) {
      float sum = 0;
      for (int64_t split = 0; split < g.splits; ++split)
        sum += partial[static_cast<std::size_t>(split * of_range + i)];
      return static_cast<double>(sum);
    };
    parallel_for(threads_, weights, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) store(problem_.dtype.w, tensors.dw, i, sum_of(i));
    });
    for (int64_t k = 0; problem_.bias && k < problem_.k; ++k)
      store(problem_.dtype.bias, tensors.dbias, k, sum_of(weights + k));
  }

 private:
  // A range of chunks, and the filters and channels whose weights it has: of all tensors, not of a group.
  struct Task {
    int64_t split, filter, filters, channel, channels;
    float *x, *dy, *sums, *bias;
    WgradRun* runs;
  };
  // Some output rows of a frame, and the window of the input that they read.
  struct Chunk {
    int64_t n, z, first_row, rows, window, window_rows;
  };

  Task task_of(int64_t index, float* memory) const {
    const WgradGeometry& g = geometry_;
    const int64_t part = index % g.filter_tasks, group = index / g.filter_tasks % g.groups;
    Task task{.split = index / g.filter_tasks / g.groups,
              .filter = group * g.filters + part * g.task_filters,
              .filters = std::min(g.task_filters, g.filters - part * g.task_filters),
              .channel = group * g.channels,
              .channels = g.channels,
              .x = memory + g.x_panel,
              .dy = memory + g.dy_panel,
              .sums = memory + g.sums,
              .bias = memory + g.bias,
              .runs = reinterpret_cast<WgradRun*>(memory + g.runs)};
    if (g.depthwise) task.channel = task.filter, task.channels = task.filters;
    return task;
  }

  Chunk chunk_of(int64_t index) const {
    const WgradGeometry& g = geometry_;
    const ConvProblem& a = problem_;
    const int64_t frame = index / g.row_chunks, first = index % g.row_chunks * g.rows;
    const int64_t rows = std::min(g.rows, a.p() - first);
    const int64_t top = std::clamp<int64_t>(first * a.stride_h - a.pad_top, 0, a.h);
    const int64_t bottom = (first + rows - 1) * a.stride_h + (a.r - 1) * a.dilation_h - a.pad_top + 1;
    return {.n = frame / a.z(),
            .z = frame % a.z(),
            .first_row = first,
            .rows = rows,
            .window = top,
            .window_rows = std::clamp<int64_t>(bottom, top, std::min(a.h, top + g.window_rows)) - top};
  }

  void compute(const Task& task, const Tensors& tensors) const {
    const WgradGeometry& g = geometry_;
    std::fill_n(task.sums, g.tiles * g.tile, 0.0F);
    std::fill_n(task.bias, g.task_filters, 0.0F);
    for (int64_t i = task.split * g.chunks / g.splits; i < (task.split + 1) * g.chunks / g.splits; ++i) {
      const Chunk chunk = chunk_of(i);
      read_x(task, chunk, tensors.x);
      read_dy(task, chunk, tensors.dy);
      multiply(task, chunk);
      if (problem_.bias) add_bias(task, chunk);
    }
  }

  int64_t input_row(int64_t z, int64_t tap) const {
    return z * problem_.stride_d + tap * problem_.dilation_d - problem_.pad_front;
  }

  // Pixels of neighbouring rows follow each other in both layouts.
  void read(DType type, const void* tensor, int64_t all_channels, int64_t frames, int64_t plane,
            int64_t image, int64_t frame, int64_t pixel, int64_t pixels, int64_t channel, int64_t channels,
            float* to, int64_t to_step) const {
    const bool last = problem_.layout == Layout::nhwc;
    const int64_t first = last ? ((image * frames + frame) * plane + pixel) * all_channels + channel
                               : ((image * all_channels + channel) * frames + frame) * plane + pixel;
    tensors_.read({.type = type,
                   .words = Words::f32,
                   .x = static_cast<const char*>(tensor) + first * size_of(type),
                   .pixel_step = last ? all_channels : 1,
                   .channel_step = last ? 1 : frames * plane,
                   .pixels = pixels,
                   .channels = channels,
                   .to = to,
                   .to_step = to_step});
  }

  void read_x(const Task& task, const Chunk& chunk, const void* x) const {
    const WgradGeometry& g = geometry_;
    const ConvProblem& a = problem_;
    for (int64_t block = 0; block * g.x_block < task.channels; ++block)
      for (int64_t tap = 0; tap < a.t; ++tap) {
        const int64_t frame = input_row(chunk.z, tap), channel = block * g.x_block;
        if (frame < 0 || frame >= a.d || chunk.window_rows == 0) continue;
        read(a.dtype.x, x, a.c, a.d, a.h * a.w, chunk.n, frame, chunk.window * a.w, chunk.window_rows * a.w,
             task.channel + channel, std::min(g.x_block, task.channels - channel),
             task.x + (block * g.x_pixels + tap * g.window_rows * a.w) * g.x_block, g.x_block);
      }
  }

  void read_dy(const Task& task, const Chunk& chunk, const void* dy) const {
    const WgradGeometry& g = geometry_;
    const ConvProblem& a = problem_;
    const int64_t q = a.q();
    for (int64_t block = 0; block * g.dy_block < task.filters; ++block) {
      const int64_t filter = block * g.dy_block;
      read(a.dtype.y, dy, a.k, a.z(), a.p() * q, chunk.n, chunk.z, chunk.first_row * q, chunk.rows * q,
           task.filter + filter, std::min(g.dy_block, task.filters - filter),
           task.dy + block * g.dy_pixels * g.dy_block, g.dy_block);
    }
  }

  // Writes the runs of a tap, and returns their number. Padding is in none: nothing is multiplied by it.
  int64_t runs_of(const Task& task, const Chunk& chunk, int64_t tap) const {
    const WgradGeometry& g = geometry_;
    const ConvProblem& a = problem_;
    const int64_t t = tap / (a.r * a.s), r = tap / a.s % a.r, s = tap % a.s;
    const int64_t frame = input_row(chunk.z, t), shift = s * a.dilation_w - a.pad_left;
    const Outputs outputs = outputs_within(shift, a.stride_w, a.q(), a.w);
    if (frame < 0 || frame >= a.d || outputs.count == 0) return 0;
    int64_t count = 0;
    for (int64_t i = 0; i < chunk.rows; ++i) {
      const int64_t row = (chunk.first_row + i) * a.stride_h + r * a.dilation_h - a.pad_top;
      if (row < 0 || row >= a.h) continue;
      const int64_t x =
          ((t * g.window_rows + row - chunk.window) * a.w + outputs.first * a.stride_w + shift) * g.x_block;
      const int64_t dy = (i * a.q() + outputs.first) * g.dy_block;
      task.runs[count++] =
          filters_fill_vectors_ ? WgradRun{dy, x, outputs.count} : WgradRun{x, dy, outputs.count};
    }
    return count;
  }

  void multiply(const Task& task, const Chunk& chunk) const {
    const WgradGeometry& g = geometry_;
    const int64_t x_step = problem_.stride_w * g.x_block, dy_step = g.dy_block;
    const int64_t blocks = ceil_div(task.filters, g.dy_block);
    for (int64_t tap = 0; tap < g.taps; ++tap) {
      WgradArgs args{.vectors = nullptr,
                     .words = nullptr,
                     .runs = task.runs,
                     .run_count = runs_of(task, chunk, tap),
                     .vector_step = filters_fill_vectors_ ? dy_step : x_step,
                     .word_step = filters_fill_vectors_ ? x_step : dy_step,
                     .sums = nullptr};
      if (args.run_count == 0) continue;
      for (int64_t i = 0; i * g.x_block < task.channels; ++i) {
        const float* const x = task.x + i * g.x_pixels * g.x_block;
        for (int64_t j = g.depthwise ? i : 0; j < (g.depthwise ? i + 1 : blocks); ++j) {
          const float* const dy = task.dy + j * g.dy_pixels * g.dy_block;
          args.vectors = filters_fill_vectors_ ? dy : x, args.words = filters_fill_vectors_ ? x : dy;
          args.sums = sums_of(task, i, j, tap);
          kernel_(args);
        }
      }
    }
  }

  float* sums_of(const Task& task, int64_t x_block, int64_t dy_block, int64_t tap) const {
    const WgradGeometry& g = geometry_;
    const int64_t blocks = g.depthwise ? x_block : x_block * g.dy_blocks + dy_block;
    return task.sums + (blocks * g.taps + tap) * g.tile;
  }

  void add_bias(const Task& task, const Chunk& chunk) const {
    const WgradGeometry& g = geometry_;
    const int64_t pixels = chunk.rows * problem_.q();
    for (int64_t k = 0; k < task.filters; ++k) {
      const float* dy = task.dy + k / g.dy_block * g.dy_pixels * g.dy_block + k % g.dy_block;
      float sum = 0;
      for (int64_t i = 0; i < pixels; ++i, dy += g.dy_block) sum += *dy;
      task.bias[k] += sum;
    }
  }

  // To their places in the range's partial sums.
  void write(const Task& task, float* dw, float* dbias) const {
    const WgradGeometry& g = geometry_;
    const int64_t of_filter = problem_.c / problem_.groups * g.taps;
    for (int64_t k = 0; k < task.filters; ++k) {
      float* to = dw + (task.filter + k) * of_filter;
      dbias[task.filter + k] = task.bias[k];
      for (int64_t c = g.depthwise ? k : 0; c < (g.depthwise ? k + 1 : task.channels); ++c)
        for (int64_t tap = 0; tap < g.taps; ++tap) {
          const float* const sums = sums_of(task, c / g.x_block, k / g.dy_block, tap);
          const int64_t i = c % g.x_block, j = k % g.dy_block;
          *to++ = sums[g.depthwise ? i : filters_fill_vectors_ ? i * g.dy_block + j : j * g.x_block + i];
        }
    }
  }

  const ConvProblem problem_;
  const WgradGeometry geometry_;
  const bool filters_fill_vectors_;
  const int threads_;
  const WgradKernels& kernels_;
  const TensorKernels& tensors_;
  WgradKernel kernel_ = nullptr;
};

}  // namespace

std::unique_ptr<Executable> wgrad_executable(const ConvProblem& problem, const WgradConfig& config,
                                             int threads) {
  return std::make_unique<WgradExecutable>(problem, config, threads);
}

}  // namespace convtune::cpu
