// Winograd's convolution of NCHW tensors: every stage of a task in a core's cache (winograd_geometry.h). The
// products are multiplied by the direct convolution's register tiles, vectors running over tiles of the
// output. With a depth V has the frames that one of outputs reads, as channels, and for the next one only the
// frames that are new are transformed.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "cpu/algorithms/winograd/winograd_executable.h"
#include "cpu/base/parallel.h"
#include "cpu/launch/frame_images.h"
#include "cpu/tile/winograd/winograd_repair.h"

namespace convtune::cpu {
namespace {

class ChannelsFirst : public WinogradExecutable {
 public:
  // `problem`: of images, those of `volume` if that has a depth.
  ChannelsFirst(const ConvProblem& problem, const ConvProblem& volume, const WinogradConfig& config,
                int threads)
      : WinogradExecutable(problem, config, threads), volume_(volume) {
    offsets_.resize(static_cast<std::size_t>(volume.t));
    for (std::int64_t turn = 0; turn < volume.t; ++turn)
      for (std::int64_t width = 1; width <= config.vectors; ++width)
        for (std::int64_t c = 0; c < geometry_.group_channels; ++c) {
          const std::int64_t place = c - c % volume.t + (c + turn) % volume.t;
          offsets_[static_cast<std::size_t>(turn)][static_cast<std::size_t>(width - 1)].push_back(
              static_cast<std::int32_t>(place * width * kernels_.lanes));
        }
  }

 protected:
  // Outputs that are computed: frame z of image n and of those behind it, and how far frames have turned in
  // V: tap t of a channel is in place (t + turn) % taps, where c % taps counts as t.
  struct Frame {
    std::int64_t n = 0, z = 0, turn = 0;
  };

  void compute_frame(const WinogradTask& task, const Frame& frame, const float* x, const float* packed,
                     float* memory, const Outputs<float>& outputs) const {
    for_each_chunk(task, [&](std::int64_t from, std::int64_t end) {
      multiply(task, from, end, packed, memory, offsets_[static_cast<std::size_t>(frame.turn)]);
      finish(task, frame, from, end, x, packed, memory, outputs);
    });
  }

 private:
  // Offsets of channels in panels of each width.
  using Offsets = std::array<std::vector<std::int32_t>, kMaxTileVectors>;

  void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
               const Outputs<float>& outputs) const override {
    compute_frame(task, {}, x, packed, memory, outputs);
  }

  // Channel 0 of product 0 of a block in V.
  float* block_of(float* memory, std::int64_t first_vector) const {
    return memory + geometry_.transformed + first_vector * kernels_.lanes * geometry_.group_channels;
  }

  // V of all channels of a task.
  void transform_input(const WinogradTask& task, const float* x, float* memory) const override {
    const WinogradGeometry& g = geometry_;
    const std::int64_t plane = problem_.h * problem_.w;
    for (std::int64_t c = 0; c < g.group_channels; ++c)
      transform_channel(task, c, memory, [&](const WinogradRun& run) {
        return x + (run.n * problem_.c + task.group * g.group_channels + c) * plane;
      });
  }

 protected:
  // V of a channel, whose plane for a run's image is plane_of(run): zeros where that is null.
  template <class PlaneOf>
  void transform_channel(const WinogradTask& task, std::int64_t c, float* memory,
                         const PlaneOf& plane_of) const {
    const WinogradGeometry& g = geometry_;
    float* const rows = memory + g.rows;
    float* const half = memory + g.half;
    g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
      const float* const image = plane_of(run);
      const std::int64_t width = run.count * g.m + 2, step = problem_.dilation_w;
      const std::int64_t first_col = run.col * g.m * step + run.col_phase - problem_.pad_left;
      const std::int64_t from = std::clamp<std::int64_t>((step - 1 - first_col) / step, 0, width);
      const std::int64_t end =
          std::clamp<std::int64_t>((problem_.w - first_col + step - 1) / step, from, width);
      for (std::int64_t i = 0; i < g.inputs; ++i) {
        const std::int64_t row = (run.row * g.m + i) * problem_.dilation_h + run.row_phase - problem_.pad_top;
        float* const to = rows + i * g.row_pitch;
        if (image == nullptr || row < 0 || row >= problem_.h) {
          std::fill_n(to, width, 0.0F);
          continue;
        }
        std::fill_n(to, from, 0.0F);
        const float* const columns = image + row * problem_.w + first_col;
        if (step == 1)
          std::copy_n(columns + from, end - from, to + from);
        else
          for (std::int64_t j = from; j < end; ++j) to[j] = columns[j * step];
        std::fill_n(to + end, width - end, 0.0F);
      }
      transforms_.input_rows(rows, g.row_pitch, run.count, half + run.offset, g.half_stride);
    });
    clear_junk(task, half, g.products);
    for_each_block(task, [&](std::int64_t first, std::int64_t width) {
      transforms_.input_columns(half + first * kernels_.lanes, g.half_stride, width,
                                block_of(memory, first) + c * width * kernels_.lanes,
                                g.group_channels * g.stride);
    });
  }

 private:
  // M of the output channels of register tiles [from, end).
  void multiply(const WinogradTask& task, std::int64_t from, std::int64_t end, const float* weights,
                float* memory, const Offsets& offsets) const {
    const WinogradGeometry& g = geometry_;
    for (std::int64_t product = 0; product < g.products; ++product)
      for_each_block(task, [&](std::int64_t first, std::int64_t width) {
        TileArgs args{.window = block_of(memory, first) + product * g.group_channels * g.stride,
                      .taps = offsets[static_cast<std::size_t>(width - 1)].data(),
                      .tap_count = g.group_channels,
                      .weights = nullptr,
                      .acc = nullptr,
                      .acc_stride = g.stride};
        const TileKernel kernel = tile_.kernels[static_cast<std::size_t>(width - 1)];
        for (std::int64_t block = from; block < end; ++block) {
          args.weights = weights + geometry_.packed_panel(task.group, block, product);
          args.acc = multiplied(memory, product, (block - from) * config_.channels) + first * kernels_.lanes;
          kernel(args);
        }
      });
  }
  float* multiplied(float* memory, std::int64_t product, std::int64_t channel) const {
    const WinogradGeometry& g = geometry_;
    return memory + g.multiplied + (product * g.chunk_filters + channel) * g.stride;
  }

  // Outputs of those channels from their M.
  void finish(const WinogradTask& task, const Frame& frame, std::int64_t from, std::int64_t end,
              const float* x, const float* packed, float* memory, const Outputs<float>& outputs) const {
    const WinogradGeometry& g = geometry_;
    const std::int64_t z = volume_.z(), p = problem_.p(), q = problem_.q();
    float* const sums = memory + g.sums;
    const std::int64_t first = from * config_.channels,
                       last = std::min(end * config_.channels, g.group_filters);
    for (std::int64_t in_group = first; in_group < last; ++in_group) {
      const std::int64_t k = task.group * g.group_filters + in_group;
      const bool finite =
          transforms_.output(multiplied(memory, 0, in_group - first), g.chunk_filters * g.stride,
                             vectors_of(task), sums, g.sums_stride);
      const float bias = packed[geometry_.packed_bias_of(task.group, in_group)];
      g.for_each_run(task.first_tile, task.tiles, [&](const WinogradRun& run) {
        const std::int64_t step = problem_.dilation_w, col = run.col * g.m * step + run.col_phase;
        const std::int64_t count = std::min(run.count * g.m, (q - col + step - 1) / step);
        for (std::int64_t r = 0; r < g.m && count > 0; ++r) {
          const std::int64_t row = (run.row * g.m + r) * problem_.dilation_h + run.row_phase;
          if (row >= p) break;
          float* const values = sums + r * g.sums_stride + run.offset * g.m;
          if (!finite)
            for (std::int64_t i = 0; i < count; ++i)
              repair_sum(volume_, x, packed + g.packed_weights,
                         {frame.n + run.n, k, row, col + i * step, frame.z}, values[i]);
          const std::int64_t plane = ((frame.n + run.n) * problem_.k + k) * z + frame.z;
          finish_row(values, bias, outputs + ((plane * p + row) * q + col), count);
        }
      });
    }
  }

  // A row of a plane, or with a dilation every second, third ... of its outputs.
  void finish_row(float* values, float bias, const Outputs<float>& to, std::int64_t count) const {
    const std::int64_t step = problem_.dilation_w;
    if (step == 1) return kernels_.finish(values, bias, epilogue_, to, count);
    for (std::int64_t i = 0; to.residual != nullptr && i < count; ++i) values[i] += to.residual[i * step];
    kernels_.finish(values, bias, epilogue_, {values, nullptr}, count);
    for (std::int64_t i = 0; i < count; ++i) to.y[i * step] = values[i];
  }

  std::vector<Offsets> offsets_;  // channels' offsets in V, for each turn

 protected:
  const ConvProblem volume_;
};

// A task goes through frames of outputs with its tiles.
class Frames final : public ChannelsFirst {
 public:
  Frames(const ConvProblem& volume, const WinogradConfig& config, int threads)
      : ChannelsFirst(built_images(volume), volume, config, threads) {
    // Each share of the frames transforms all that its first one reads.
    constexpr std::int64_t kTasksAThread = 4;
    const std::int64_t z = volume.z(), tasks = std::max<std::int64_t>(volume.n * geometry_.tasks, 1);
    const std::int64_t wanted = ceil_div(kTasksAThread * threads, tasks);
    share_frames_ = ceil_div(z, std::clamp<std::int64_t>(wanted, 1, z));
    shares_ = ceil_div(z, share_frames_);
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const auto* x = static_cast<const float*>(tensors.x);
    const auto* weights = static_cast<const float*>(packed);
    const Outputs<float> outputs = outputs_of<float>(volume_, tensors);
    parallel_tasks(threads_, volume_.n * shares_ * geometry_.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(geometry_.memory);
      std::vector<std::int64_t> kept(static_cast<std::size_t>(volume_.t));  // frames in V
      for (std::int64_t index = 0; tasks.next(index);) {
        const std::int64_t first = index / geometry_.tasks % shares_ * share_frames_;
        const WinogradTask task = geometry_.task(index % geometry_.tasks);
        std::ranges::fill(kept, std::numeric_limits<std::int64_t>::min());
        Frame frame{.n = index / geometry_.tasks / shares_};
        for (frame.z = first; frame.z < std::min(first + share_frames_, volume_.z()); ++frame.z) {
          transform_frames(task, frame, kept, x, memory);
          compute_frame(task, frame, x, weights, memory, outputs);
        }
      }
    });
  }

 private:
  // Transforms frames that V lacks. Frame f is in place f % taps.
  void transform_frames(const WinogradTask& task, Frame& frame, std::vector<std::int64_t>& kept,
                        const float* x, float* memory) const {
    const std::int64_t taps = volume_.t, channels = geometry_.group_channels / taps;
    const std::int64_t first = frame.z * volume_.stride_d - volume_.pad_front;
    frame.turn = (first % taps + taps) % taps;
    for (std::int64_t t = 0; t < taps; ++t) {
      const std::int64_t place = (t + frame.turn) % taps, f = first + t;
      if (std::exchange(kept[static_cast<std::size_t>(place)], f) == f) continue;
      const bool inside = f >= 0 && f < volume_.d;
      for (std::int64_t c = 0; c < channels; ++c)
        transform_channel(task, c * taps + place, memory, [&](const WinogradRun&) {
          const std::int64_t channel = frame.n * volume_.c + task.group * channels + c;
          return inside ? x + (channel * volume_.d + f) * volume_.h * volume_.w : nullptr;
        });
    }
  }

  std::int64_t shares_, share_frames_;  // shares of the outputs' frames, and the frames of one
};

}  // namespace

std::unique_ptr<Executable> winograd_channels_first(const ConvProblem& problem, const WinogradConfig& config,
                                                    int threads) {
  return std::make_unique<ChannelsFirst>(problem, problem, config, threads);
}

bool winograd_reads_frames(const ConvProblem& volume) {
  return volume.layout == Layout::nchw && volume.dilation_d == 1 && volume.t > 1 && !is_decomposed(volume);
}

std::unique_ptr<Executable> winograd_frames(const ConvProblem& volume, const WinogradConfig& config,
                                            int threads) {
  return std::make_unique<Frames>(volume, config, threads);
}

}  // namespace convtune::cpu
