// direct: the fast CPU path. NCHW in and out with no layout change of the activations in memory: a
// tile's input window is staged in the core's cache (direct_geometry.h) and multiplied there.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "config.h"
#include "cpu/cpu.h"
#include "cpu/direct_candidates.h"
#include "cpu/direct_geometry.h"
#include "cpu/direct_kernels.h"
#include "cpu/direct_window.h"
#include "cpu/padding_repair.h"
#include "cpu/parallel.h"

namespace convtune::cpu {
namespace {

// A thread's staging memory: kept from call to call, grown when a plan needs more. Zeroed when
// grown, because kernels multiply the junk between rows and stray denormals there would be slow.
class Scratch {
 public:
  float* reserve(std::int64_t floats) {
    if (floats > size_) {
      data_.reset();
      data_.reset(
          static_cast<float*>(::operator new(static_cast<std::size_t>(floats) * sizeof(float), kAlignment)));
      std::memset(data_.get(), 0, static_cast<std::size_t>(floats) * sizeof(float));
      size_ = floats;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
};

const TileShape& find_tile(const DirectKernels& kernels, const DirectConfig& config) {
  return *std::find_if(kernels.tiles.begin(), kernels.tiles.end(), [&](const TileShape& tile) {
    return tile.channels == config.channels && tile.vectors == config.vectors;
  });
}

class DirectExecutable final : public Executable {
 public:
  DirectExecutable(const Conv2dProblem& problem, const DirectConfig& config, int threads)
      : problem_(problem),
        config_(config),
        kernels_(*direct_kernels(config.vector_bits)),
        tile_(find_tile(kernels_, config)),
        geometry_(problem, config, kernels_.lanes),
        threads_(threads) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(flag_offset() + 1) * sizeof(float);
  }

  // [group][register tile][tap][channel of the tile], then the bias in the same padded order, then
  // whether any weight is infinite or NaN.
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const DirectGeometry& g = geometry_;
    const auto* weights = static_cast<const float*>(w);
    auto* out = static_cast<float*>(packed);
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      for (std::int64_t k = 0; k < g.filter_blocks * config_.channels; ++k) {
        const std::int64_t filter = group * g.group_filters + k;
        const bool real = k < g.group_filters;
        float* tile = out + packed_filter(group, k);
        for (std::int64_t t = 0; t < g.taps; ++t)
          tile[t * config_.channels] = real ? weights[filter * g.taps + t] : 0;
        out[packed_bias(group, k)] = real && bias ? static_cast<const float*>(bias)[filter] : 0;
      }
    }
    out[flag_offset()] = any_non_finite(weights, problem_.weight_elements()) ? 1 : 0;
  }

  void run(const void* x, const void* packed, void* y, Stream) const override {
    const auto* input = static_cast<const float*>(x);
    const auto* weights = static_cast<const float*>(packed);
    auto* output = static_cast<float*>(y);
    parallel_for(threads_, geometry_.tasks, [&](int, std::int64_t begin, std::int64_t end) {
      thread_local Scratch scratch;
      const Memory memory = memory_in(scratch);
      std::int64_t staged = -1;  // consecutive tasks share a tile and differ in their filters
      for (std::int64_t task = begin; task < end; ++task) {
        const DirectTile tile = geometry_.tile(task / geometry_.filter_tasks);
        if (staged != tile.index) stage_window(problem_, geometry_, kernels_, tile, input, memory.window);
        staged = tile.index;
        compute(tile, task % geometry_.filter_tasks, memory, weights, output);
      }
    });
    if (weights[flag_offset()] != 0) repair(input, weights, output);
  }

 private:
  struct Memory {
    float *window, *acc, *gather;
  };

  Memory memory_in(Scratch& scratch) const {
    float* const base = scratch.reserve(geometry_.window + geometry_.acc + geometry_.gather);
    return {base, base + geometry_.window, base + geometry_.window + geometry_.acc};
  }
  // Where pack() puts tap 0 of filter k of a group, and its bias.
  std::int64_t packed_filter(std::int64_t group, std::int64_t k) const {
    return (group * geometry_.filter_blocks + k / config_.channels) * geometry_.packed_block +
           k % config_.channels;
  }
  std::int64_t packed_bias(std::int64_t group, std::int64_t k) const {
    const std::int64_t padded = geometry_.filter_blocks * config_.channels;
    return problem_.groups * padded * geometry_.taps + group * padded + k;
  }
  std::int64_t flag_offset() const { return packed_bias(problem_.groups, 0); }

  void repair(const float* x, const float* packed, float* y) const {
    std::vector<float> w(static_cast<std::size_t>(problem_.weight_elements())),
        bias(static_cast<std::size_t>(problem_.k));
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      const std::int64_t group = k / geometry_.group_filters, in_group = k % geometry_.group_filters;
      for (std::int64_t t = 0; t < geometry_.taps; ++t)
        w[static_cast<std::size_t>(k * geometry_.taps + t)] =
            packed[packed_filter(group, in_group) + t * config_.channels];
      bias[static_cast<std::size_t>(k)] = packed[packed_bias(group, in_group)];
    }
    repair_padded_outputs(problem_, x, w.data(), problem_.bias ? bias.data() : nullptr, y);
  }

  void compute(const DirectTile& tile, std::int64_t filter_task, const Memory& memory, const float* packed,
               float* y) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t first = filter_task * g.task_filter_blocks;
    const std::int64_t last = std::min(first + g.task_filter_blocks, g.filter_blocks);
    const std::int64_t positions = (tile.rows - 1) * g.pitch + tile.cols;
    for (std::int64_t tap = 0; tap < g.taps; tap += g.pass_taps) {
      const bool last_pass = tap + g.pass_taps >= g.taps;
      for (std::int64_t position = 0; position < positions; position += g.block) {
        const std::int64_t vectors =
            std::min<std::int64_t>((positions - position - 1) / kernels_.lanes + 1, config_.vectors);
        const TileKernel kernel = tile_.kernels[static_cast<std::size_t>(vectors - 1)];
        for (std::int64_t f = first; f < last; ++f) {
          float* acc =
              memory.acc + (g.keeps_all ? (f - first) * config_.channels * g.acc_stride + position : 0);
          const float* weights = packed + packed_filter(tile.group, f * config_.channels);
          kernel({.window = memory.window + position,
                  .taps = g.tap_offsets.data() + tap,
                  .tap_count = std::min(g.pass_taps, g.taps - tap),
                  .weights = weights + tap * config_.channels,
                  .acc = acc,
                  .acc_stride = g.acc_stride,
                  .accumulate = tap > 0});
          if (last_pass && !config_.stream)
            store(tile, f, position, std::min(position + g.block, positions), acc, packed, y);
        }
      }
    }
    if (config_.stream)
      for (std::int64_t f = first; f < last; ++f)
        store_streaming(tile, f, memory.acc + (f - first) * config_.channels * g.acc_stride, memory.gather,
                        packed, y);
  }

  // The filters of one register tile that exist, as f(channel of the tile, filter of the problem, bias).
  template <class Visit>
  void for_each_filter(const DirectTile& tile, std::int64_t block, const float* packed, Visit&& visit) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t first = block * config_.channels;
    const float* bias = packed + packed_bias(tile.group, first);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(config_.channels, g.group_filters - first); ++i)
      visit(i, tile.group * g.group_filters + first + i, bias[i]);
  }

  // Adds bias, activates and writes positions [begin, end) of a register tile, row by row.
  void store(const DirectTile& tile, std::int64_t block, std::int64_t begin, std::int64_t end,
             const float* acc, const float* packed, float* y) const {
    const DirectGeometry& g = geometry_;
    const bool relu = problem_.activation == Activation::relu;
    const std::int64_t q = problem_.q(), plane = problem_.p() * q;
    for (std::int64_t row = begin / g.pitch; row * g.pitch < end; ++row) {
      const std::int64_t from = std::max(begin, row * g.pitch);
      const std::int64_t to = std::min(end, row * g.pitch + tile.cols);
      if (from >= to) continue;
      const std::int64_t pixel = (tile.row + row) * q + tile.col + from - row * g.pitch;
      for_each_filter(tile, block, packed, [&](std::int64_t i, std::int64_t k, float bias) {
        const float* values = acc + i * g.acc_stride + from - begin;
        if (problem_.layout == Layout::nchw) {
          kernels_.finish(values, bias, relu, y + (tile.n * problem_.k + k) * plane + pixel, to - from);
        } else {
          float* out = y + (tile.n * plane + pixel) * problem_.k + k;
          for (std::int64_t j = 0; j < to - from; ++j)
            kernels_.finish(values + j, bias, relu, out + j * problem_.k, 1);
        }
      });
    }
  }

  // A tile of whole rows is one contiguous run of each output plane: gathered, then stored past the
  // caches. Storing row by row would write partial lines at both ends of every row.
  void store_streaming(const DirectTile& tile, std::int64_t block, const float* acc, float* gather,
                       const float* packed, float* y) const {
    const DirectGeometry& g = geometry_;
    const bool relu = problem_.activation == Activation::relu;
    const std::int64_t q = problem_.q(), plane = problem_.p() * q;
    for_each_filter(tile, block, packed, [&](std::int64_t i, std::int64_t k, float bias) {
      for (std::int64_t row = 0; row < tile.rows; ++row)
        kernels_.finish(acc + i * g.acc_stride + row * g.pitch, bias, relu, gather + row * q, q);
      kernels_.stream(gather, y + (tile.n * problem_.k + k) * plane + tile.row * q, tile.rows * q);
    });
  }

  Conv2dProblem problem_;
  DirectConfig config_;
  const DirectKernels& kernels_;
  const TileShape& tile_;
  DirectGeometry geometry_;
  int threads_;
};

class Direct final : public Algorithm {
 public:
  std::string_view name() const override { return "direct"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }

  Support supports(const Conv2dProblem& problem, const DeviceInfo& info) const override {
    return direct_supports(problem, info);
  }
  std::vector<Config> candidates(const Conv2dProblem& problem, const DeviceInfo& info) const override {
    std::vector<Config> configs;
    for (const DirectConfig& config : direct_candidates(problem, info)) configs.push_back(to_config(config));
    return configs;
  }
  Support accepts(const Conv2dProblem& problem, const DeviceInfo& info, const Config& config) const override {
    try {
      return direct_accepts(problem, info, from_config<DirectConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
  // The multiply-adds that a config issues, junk included, at the measured peak (at half or a
  // quarter of it with narrower vectors than the processor has).
  double bound_us(const Conv2dProblem& problem, const DeviceInfo& info, const Config& config,
                  const Ceilings& ceilings) const override {
    const auto typed = from_config<DirectConfig>(config);
    const DirectGeometry geometry(problem, typed, direct_kernels(typed.vector_bits)->lanes);
    const double share = static_cast<double>(typed.vector_bits) / direct_vector_bits(info);
    return 2e6 * geometry.issued_multiply_adds / (ceilings.flops_per_second * share);
  }
  std::unique_ptr<Executable> build(const Conv2dProblem& problem, const DeviceInfo& info,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, info, config); !support)
      throw Error(ErrorKind::unsupported,
                  "direct cannot run with '" + to_string(config) + "': " + support.reason());
    return std::make_unique<DirectExecutable>(problem, from_config<DirectConfig>(config), info.units);
  }
  // Raised by hand when the kernels or the meaning of a config field change.
  std::string source_hash() const override { return "direct-1"; }
};

}  // namespace

const Algorithm& direct() {
  static const Direct algorithm;
  return algorithm;
}

}  // namespace convtune::cpu
