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

TileKernel find_tile(const DirectKernels& kernels, const DirectConfig& config) {
  for (const TileShape& tile : kernels.tiles)
    if (tile.channels == config.channels && tile.vectors == config.vectors) return tile.kernel;
  return nullptr;
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
    return static_cast<std::size_t>((bias_offset() + padded_filters()) *
                                    static_cast<std::int64_t>(sizeof(float)));
  }

  // [group][register tile][tap][channel of the tile], then the bias in the same padded order.
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const DirectGeometry& g = geometry_;
    const auto* weights = static_cast<const float*>(w);
    auto* out = static_cast<float*>(packed);
    auto* out_bias = out + bias_offset();
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      for (std::int64_t k = 0; k < g.filter_blocks * config_.channels; ++k) {
        const std::int64_t filter = group * g.group_filters + k;
        const bool real = k < g.group_filters;
        float* tile =
            out + (group * g.filter_blocks + k / config_.channels) * g.packed_block + k % config_.channels;
        for (std::int64_t t = 0; t < g.taps; ++t)
          tile[t * config_.channels] = real ? weights[filter * g.taps + t] : 0;
        *out_bias++ = real && bias ? static_cast<const float*>(bias)[filter] : 0;
      }
    }
  }

  void run(const void* x, const void* packed, void* y, Stream) const override {
    parallel_for(threads_, geometry_.tasks, [&](int, std::int64_t begin, std::int64_t end) {
      thread_local Scratch scratch;
      const Memory memory = memory_in(scratch);
      std::int64_t staged = -1;  // consecutive tasks share a tile and differ in their filters
      for (std::int64_t task = begin; task < end; ++task) {
        const Tile tile = tile_of(task / geometry_.filter_tasks);
        if (staged != tile.index) stage(tile, static_cast<const float*>(x), memory.window);
        staged = tile.index;
        compute(tile, task % geometry_.filter_tasks, memory, static_cast<const float*>(packed),
                static_cast<float*>(y));
      }
    });
  }

 private:
  struct Tile {
    std::int64_t index, n, group, row, col, rows, cols;  // rows, cols: what the output plane leaves of it
  };

  struct Memory {
    float *window, *acc, *gather;
  };

  Memory memory_in(Scratch& scratch) const {
    float* const base = scratch.reserve(geometry_.window + geometry_.acc + geometry_.gather);
    return {base, base + geometry_.window, base + geometry_.window + geometry_.acc};
  }
  std::int64_t padded_filters() const { return problem_.groups * geometry_.filter_blocks * config_.channels; }
  std::int64_t bias_offset() const { return padded_filters() * geometry_.taps; }

  Tile tile_of(std::int64_t index) const {
    const DirectGeometry& g = geometry_;
    Tile tile{};
    tile.index = index;
    tile.col = index % g.col_tiles * g.tile_cols;
    index /= g.col_tiles;
    tile.row = index % g.row_tiles * g.tile_rows;
    index /= g.row_tiles;
    tile.group = index % problem_.groups;
    tile.n = index / problem_.groups;
    tile.rows = std::min(g.tile_rows, problem_.p() - tile.row);
    tile.cols = std::min(g.tile_cols, problem_.q() - tile.col);
    return tile;
  }

  // Copies the input that a tile reads into the window, split by stride phase, zeros at the padding.
  void stage(const Tile& tile, const float* x, float* window) const {
    const DirectGeometry& g = geometry_;
    const bool nchw = problem_.layout == Layout::nchw;
    const std::int64_t column_step = nchw ? 1 : problem_.c;
    const std::int64_t row_step = problem_.w * column_step;
    const std::int64_t channel_step = nchw ? problem_.h * problem_.w : 1;
    const float* image = x + tile.n * problem_.c * problem_.h * problem_.w;
    const auto column_phases = static_cast<std::int64_t>(g.cols_axis.phases.size());
    for (std::int64_t c = 0; c < g.group_channels; ++c) {
      const float* plane_in = image + (tile.group * g.group_channels + c) * channel_step;
      for (std::size_t phase = 0; phase < g.rows_axis.phases.size(); ++phase) {
        float* planes = window + c * g.channel + static_cast<std::int64_t>(phase) * column_phases * g.plane;
        for (std::int64_t unit = 0; unit < tile.rows + g.rows_axis.halo; ++unit) {
          const std::int64_t row =
              (tile.row + unit) * problem_.stride_h + g.rows_axis.phases[phase] - problem_.pad_top;
          const bool inside = row >= 0 && row < problem_.h;
          stage_row(inside ? plane_in + row * row_step : nullptr, column_step, tile.col,
                    planes + unit * g.pitch);
        }
      }
    }
  }

  // One input row into its column phases; a null row is padding.
  void stage_row(const float* row, std::int64_t step, std::int64_t first_col, float* to) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t stride = problem_.stride_w;
    const auto& phases = g.cols_axis.phases;
    // Window elements [from, end) of a phase lie inside the image.
    const auto inside = [&](std::int64_t phase) {
      const std::int64_t origin =
          first_col * stride + phase - problem_.pad_left;  // input column of element 0
      const std::int64_t from = origin >= 0 ? 0 : (-origin + stride - 1) / stride;
      const std::int64_t end = origin >= problem_.w ? 0 : (problem_.w - origin + stride - 1) / stride;
      return std::pair{std::min(from, g.pitch), std::clamp(end, std::min(from, g.pitch), g.pitch)};
    };
    if (!row) {
      for (std::size_t j = 0; j < phases.size(); ++j)
        std::fill_n(to + static_cast<std::int64_t>(j) * g.plane, g.pitch, 0.0f);
      return;
    }
    const auto input = [&](std::int64_t phase, std::int64_t element) {
      return row + ((first_col + element) * stride + phase - problem_.pad_left) * step;
    };
    // Where every phase is used and lies inside, all are split in one sweep over the row.
    std::int64_t swept_from = 0, swept_end = 0;
    if (step == 1 && static_cast<std::int64_t>(phases.size()) == stride) {
      swept_end = g.pitch;
      for (const std::int64_t phase : phases) {
        const auto [from, end] = inside(phase);
        swept_from = std::max(swept_from, from);
        swept_end = std::min(swept_end, end);
      }
      if (swept_from < swept_end)
        kernels_.split_phases(input(0, swept_from), stride, stride, swept_end - swept_from, to + swept_from,
                              g.plane);
      else
        swept_from = swept_end = 0;
    }
    for (std::size_t j = 0; j < phases.size(); ++j) {
      float* plane = to + static_cast<std::int64_t>(j) * g.plane;
      const auto [from, end] = inside(phases[j]);
      std::fill_n(plane, from, 0.0f);
      const auto copy = [&](std::int64_t begin, std::int64_t stop) {
        if (begin < stop)
          kernels_.split_phases(input(phases[j], begin), stride * step, 1, stop - begin, plane + begin, 0);
      };
      if (swept_from < swept_end) {
        copy(from, swept_from);
        copy(swept_end, end);
      } else {
        copy(from, end);
      }
      std::fill_n(plane + end, g.pitch - end, 0.0f);
    }
  }

  void compute(const Tile& tile, std::int64_t filter_task, const Memory& memory, const float* packed,
               float* y) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t first = filter_task * g.task_filter_blocks;
    const std::int64_t last = std::min(first + g.task_filter_blocks, g.filter_blocks);
    const std::int64_t positions = (tile.rows - 1) * g.pitch + tile.cols;
    for (std::int64_t tap = 0; tap < g.taps; tap += g.pass_taps) {
      const bool last_pass = tap + g.pass_taps >= g.taps;
      for (std::int64_t position = 0; position < positions; position += g.block) {
        for (std::int64_t f = first; f < last; ++f) {
          float* acc =
              memory.acc + (g.keeps_all ? (f - first) * config_.channels * g.acc_stride + position : 0);
          const float* weights = packed + (tile.group * g.filter_blocks + f) * g.packed_block;
          tile_({.window = memory.window + position,
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
  void for_each_filter(const Tile& tile, std::int64_t block, const float* packed, Visit&& visit) const {
    const DirectGeometry& g = geometry_;
    const std::int64_t first = block * config_.channels;
    const float* bias = packed + bias_offset() + tile.group * g.filter_blocks * config_.channels + first;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(config_.channels, g.group_filters - first); ++i)
      visit(i, tile.group * g.group_filters + first + i, bias[i]);
  }

  // Adds bias, activates and writes positions [begin, end) of a register tile, row by row.
  void store(const Tile& tile, std::int64_t block, std::int64_t begin, std::int64_t end, const float* acc,
             const float* packed, float* y) const {
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
  void store_streaming(const Tile& tile, std::int64_t block, const float* acc, float* gather,
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
  TileKernel tile_;
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
