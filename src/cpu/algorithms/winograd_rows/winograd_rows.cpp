// winograd_rows: convolutions of few channels with 1.5 times fewer products than the direct form has, of NCHW
// tensors (winograd_rows_geometry.h). What is worth trying is winograd_rows_candidates.cpp's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_candidates.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_kernels.h"
#include "cpu/base/parallel.h"
#include "cpu/launch/cpu_algorithm.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/line_blocks.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/winograd/winograd_kernels.h"
#include "cpu/tile/winograd/winograd_repair.h"
#include "cpu/tile/winograd/winograd_transform.h"
#include "problem/config_fields.h"

namespace convtune::cpu {
namespace {

class WinogradRowsExecutable final : public Executable {
 public:
  WinogradRowsExecutable(const ConvProblem& problem, const WinogradRowsConfig& config, int threads)
      : problem_(problem),
        config_(config),
        epilogue_(epilogue_of(problem)),
        kernels_(*direct_kernels(config.vector_bits)),
        transforms_(*winograd_kernels(config.vector_bits, 2)),
        rows_kernels_(*winograd_rows_kernels(config.vector_bits)),
        tile_(*find_winograd_rows_tile(config.vector_bits, config.channels, config.vectors)),
        geometry_(problem, config, kernels_.lanes),
        threads_(threads) {
    const WinogradRowsGeometry& g = geometry_;
    for (std::size_t i = 0; i < g.axis.parts.size(); ++i) {
      const WinogradPart& part = g.axis.parts[i];
      WinogradPartStep step{part.taps, {}, {}};
      std::size_t at = 0;
      for (const WinogradPartProduct& product : g.axis.products) {
        if (product.part != i) continue;
        step.from[at] = (part.first + static_cast<std::int64_t>(at) * problem.stride_h) * g.row_floats;
        step.to[at++] = g.place_of(i, product.product);
      }
      steps_.push_back(step);
    }
  }

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(geometry_.packed_floats) * sizeof(float);
  }

  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const WinogradRowsGeometry& g = geometry_;
    const auto* weights = static_cast<const float*>(w);
    auto* out = static_cast<float*>(packed);
    std::fill_n(out, g.packed_floats, 0.0F);
    std::copy_n(weights, problem_.weight_elements(), out + g.packed_weights);
    double most = 0, most_bias = 0;
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      const std::int64_t group = k / g.group_filters, in_group = k % g.group_filters;
      float* const tile =
          out + packed_block(group, in_group / config_.channels) + in_group % config_.channels;
      double sum = 0;
      for (std::size_t t = 0; t < g.taps.size(); ++t) {
        const WinogradRowsGeometry::Tap& tap = g.taps[t];
        const WinogradPart& part = g.axis.parts[tap.part];
        const float* const filter = weights + (k * g.group_channels + tap.channel) * problem_.r * problem_.s +
                                    part.first * problem_.s + tap.column;
        double value = 0;
        for (int u = 0; u < part.taps; ++u)
          value += winograd_transform(2, part.taps).g[tap.product][u] *
                   static_cast<double>(filter[u * problem_.stride_h * problem_.s]);
        // The second output has -m3.
        if (tap.product == 3) value = -value;
        tile[static_cast<std::int64_t>(t) * config_.channels] = static_cast<float>(value);
        sum += std::abs(value);
      }
      const float own = bias ? static_cast<const float*>(bias)[k] : 0.0F;
      out[packed_bias(group, in_group)] = own;
      most = greater(most, sum);
      most_bias = greater(most_bias, std::abs(static_cast<double>(own)));
    }
    out[g.packed_bounds] = static_cast<float>(most);
    out[g.packed_bounds + 1] = static_cast<float>(most_bias);
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const WinogradRowsGeometry& g = geometry_;
    const auto* x = static_cast<const float*>(tensors.x);
    const auto* weights = static_cast<const float*>(packed);
    const Outputs<float> outputs = outputs_of<float>(problem_, tensors);
    parallel_tasks(threads_, g.tasks, [&](TaskQueue& tasks) {
      thread_local Scratch scratch;
      float* const memory = scratch.reserve(g.memory);
      std::int64_t transformed = -1;  // consecutive tasks share their rows and differ in their filters
      bool finite = false;
      CutLines cuts(g.cut_lines < 0 ? nullptr : memory + g.cut_lines);
      for (std::int64_t index = 0; tasks.next(index);) {
        const WinogradRowsTask task = g.task(index);
        if (const std::int64_t rows = index / g.filter_tasks; rows != transformed) {
          finite = stays_finite(transform_input(task, x, memory), weights);
          transformed = rows;
        }
        for (std::int64_t pair = 0; pair < task.pairs; ++pair) {
          if (finite)
            compute(task, pair, weights, memory, outputs, cuts, [](const auto&...) {});
          else
            compute_checked(task, pair, x, weights, memory, outputs, cuts);
        }
      }
      cuts.finish();
      if (config_.stream) kernels_.fence();
    });
  }

 private:
  // NaN stays.
  static double greater(double a, double b) { return std::isnan(a) || b <= a ? a : b; }

  std::int64_t packed_block(std::int64_t group, std::int64_t block) const {
    return (group * geometry_.filter_blocks + block) * geometry_.packed_block;
  }
  std::int64_t packed_bias(std::int64_t group, std::int64_t in_group) const {
    return geometry_.packed_bias + group * geometry_.filter_blocks * config_.channels + in_group;
  }

  // V of all channels of a task. Returns the greatest absolute value of what it reads, NaN if there is one.
  float transform_input(const WinogradRowsTask& task, const float* x, float* memory) const {
    const WinogradRowsGeometry& g = geometry_;
    const std::int64_t first = task.row * problem_.stride_h - problem_.pad_top;
    const std::int64_t rows = (2 * task.pairs - 1) * problem_.stride_h + problem_.r;
    std::int32_t bits = 0;
    for (std::int64_t c = 0; c < g.group_channels; ++c) {
      const float* const image =
          x + (task.n * problem_.c + task.group * g.group_channels + c) * problem_.h * problem_.w;
      for (std::int64_t i = 0; i < rows; ++i) {
        const bool inside = first + i >= 0 && first + i < problem_.h;
        const float* const row = inside ? image + (first + i) * problem_.w : nullptr;
        if (inside) bits = rows_kernels_.largest(row, problem_.w, bits);
        split_row(row, memory + g.sums, memory + g.rows + i * g.row_floats);
      }
      for (std::int64_t pair = 0; pair < task.pairs; ++pair)
        transforms_.input_parts(steps_, memory + g.rows + 2 * pair * problem_.stride_h * g.row_floats,
                                g.row_floats / kernels_.lanes,
                                memory + g.transformed + (c * g.pairs + pair) * g.row_floats, g.product_step);
    }
    float largest;
    std::memcpy(&largest, &bits, sizeof largest);
    return largest;
  }

  // A row of x, null where it lies beside the image, with zeros at its ends: to[phase][kLead + column].
  void split_row(const float* row, float* memory, float* to) const {
    const WinogradRowsGeometry& g = geometry_;
    if (row == nullptr) {
      std::fill_n(to, g.row_floats, 0.0F);
      return;
    }
    const auto phases = std::ssize(g.cols.phases), step = problem_.stride_w;
    const std::int64_t units = g.pitch - g.kLead;
    if (step == 1) {
      std::fill_n(to, g.kLead, 0.0F);
      padded_row(row, units, to + g.kLead);
      return;
    }
    padded_row(row, units * step, memory);
    for (std::int64_t phase = 0; phase < phases; ++phase) std::fill_n(to + phase * g.pitch, g.kLead, 0.0F);
    kernels_.split_phases(memory, step, phases, units, to + g.kLead, g.pitch);
  }

  void padded_row(const float* row, std::int64_t width, float* to) const {
    const std::int64_t left = std::min(problem_.pad_left, width);
    const std::int64_t end = std::clamp(problem_.w + left, left, width);
    std::fill_n(to, left, 0.0F);
    std::memcpy(to + left, row, static_cast<std::size_t>(end - left) * sizeof(float));
    std::fill_n(to + end, width - end, 0.0F);
  }

  // True where nothing that is made of inputs up to `largest` can overflow or has a part that is not finite.
  // No value of V is above twice as much, and V alone may overflow: it is there before the weights, which may
  // be so small that no sum of products comes near.
  bool stays_finite(float largest, const float* packed) const {
    const float* const most = packed + geometry_.packed_bounds;
    const double input = 2.0 * static_cast<double>(largest);
    const double sum = input * static_cast<double>(most[0]) + static_cast<double>(most[1]);
    constexpr double kGreatest = std::numeric_limits<float>::max();
    return input <= kGreatest && sum < kGreatest / 2;
  }

  // Lanes of a row's first vector that lie before its first output, so that whole lines of the cache are
  // stored: y need not begin at one.
  std::int64_t skipped(const float* y) const {
    const std::int64_t within = kernels_.lanes - 1;  // a power of two
    if ((geometry_.output_cols & within) != 0) return 0;
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) / sizeof(float)) & within;
  }

  // Gives the lines that a pair of rows begins and ends within, from y on. The second row begins in the
  // one that the first ends in: blocks go from right to left, and ends are there before beginnings are.
  std::array<CutLines::Row, 2> lines_of(CutLines& cuts, float* y, std::int64_t filters, bool second,
                                        float* memory) const {
    const WinogradRowsGeometry& g = geometry_;
    const std::int64_t plane = g.output_rows * g.output_cols, all = g.group_filters * CutLines::kFloats;
    const CutLines::Row pair = cuts.row(y, filters, plane, (second ? 2 : 1) * g.output_cols);
    float* const begun = pair.begun == nullptr ? nullptr : memory + g.cut_lines + all;
    if (begun != nullptr) std::copy_n(pair.begun, filters * CutLines::kFloats, begun);
    if (!second) return {{{begun, pair.cut}, {}}};
    float* const between = memory + g.cut_lines + 2 * all;
    return {{{begun, between}, {between, pair.cut}}};
  }

  // A pair of rows of a task's filters: where V of them stays in the first cache, or lines are staggered, a
  // register tile of filters goes along whole rows, since memory takes long runs of a plane faster than short
  // ones of many.
  // visit(args, vectors, register tile, first column) follows every call of a kernel; without a y the
  // sums are kept for it.
  template <class Visit>
  void compute(const WinogradRowsTask& task, std::int64_t pair, const float* packed, float* memory,
               const Outputs<float>& outputs, CutLines& cuts, Visit&& visit) const {
    const WinogradRowsGeometry& g = geometry_;
    const std::int64_t lanes = kernels_.lanes, plane = g.output_rows * g.output_cols;
    const std::int64_t row = task.row + 2 * pair, skip = outputs.y == nullptr ? 0 : skipped(outputs.y);
    const std::int64_t vectors = (skip + g.output_cols - 1) / lanes + 1;
    const LineBlocks blocks(vectors, config_.vectors, g.line_unit);
    const std::int64_t first = task.first_block * config_.channels;
    const float* const window = memory + g.transformed + pair * g.row_floats + g.kLead - skip;
    const std::int64_t place =
        ((task.n * problem_.k + task.group * g.group_filters + first) * g.output_rows + row) * g.output_cols -
        skip;
    WinogradRowsArgs args{.window = nullptr,
                          .taps = g.offsets.data(),
                          .counts = g.counts,
                          .weights = nullptr,
                          .bias = nullptr,
                          .y = nullptr,
                          .sums = memory + g.sums,
                          .residual = nullptr,
                          .y_stride = plane,
                          .y_row = g.output_cols,
                          .y_channels = 0,
                          .skip = 0,
                          .count = 0,
                          .epilogue = epilogue_,
                          .second = row + 1 < g.output_rows,
                          .stream = config_.stream != 0};
    if (config_.stream == 2 && outputs.y != nullptr &&
        reinterpret_cast<std::uintptr_t>(outputs.y) % kCacheLineBytes == 0)
      args.stagger.ring = memory + g.ring;
    const bool joins = skip != 0 && g.cut_lines >= 0;
    std::array<CutLines::Row, 2> lines{};
    if (joins)
      lines = lines_of(cuts, outputs.y + place + skip,
                       std::min(task.last_block * config_.channels, g.group_filters) - first, args.second,
                       memory);
    const auto multiply = [&](std::int64_t block, std::int64_t turn) {
      const std::int64_t b = joins ? blocks.count - 1 - turn : turn;
      const std::int64_t from = blocks.first(b), width = blocks.width_of(b);
      const std::int64_t at = from * lanes, filters = (block - task.first_block) * config_.channels;
      args.window = window + at;
      args.weights = packed + packed_block(task.group, block);
      args.bias = packed + packed_bias(task.group, first + filters);
      if (outputs.y != nullptr) {
        const Outputs<float> to = outputs + (place + filters * plane + at);
        args.y = to.y, args.residual = to.residual;
      }
      for (std::size_t r = 0; joins && r < lines.size(); ++r)
        args.lines[r] = {lines[r].begun ? lines[r].begun + filters * CutLines::kFloats : nullptr,
                         lines[r].cut ? lines[r].cut + filters * CutLines::kFloats : nullptr};
      args.y_channels = g.group_filters - first - filters;
      args.skip = b == 0 ? skip : 0;
      args.count = g.output_cols + skip - at;
      args.stagger.last = blocks.ends_run(b);
      const WinogradRowsKernel& kernel = tile_.kernels[static_cast<std::size_t>(width - 1)];
      (args.stagger.ring != nullptr ? kernel.staggered : kernel.plain)(args);
      args.stagger.next();
      visit(args, width, block, at - skip);
    };
    if (g.along_rows)
      for (std::int64_t block = task.first_block; block < task.last_block; ++block)
        for (std::int64_t b = 0; b < blocks.count; ++b) multiply(block, b);
    else
      for (std::int64_t b = 0; b < blocks.count; ++b)
        for (std::int64_t block = task.first_block; block < task.last_block; ++block) multiply(block, b);
  }

  // Computes a pair of rows with every sum looked at.
  void compute_checked(const WinogradRowsTask& task, std::int64_t pair, const float* x, const float* packed,
                       float* memory, const Outputs<float>& outputs, CutLines& cuts) const {
    const WinogradRowsGeometry& g = geometry_;
    const auto check = [&](const WinogradRowsArgs& args, std::int64_t width, std::int64_t block,
                           std::int64_t col) {
      const std::int64_t channels = std::min<std::int64_t>(config_.channels, args.y_channels);
      const std::int64_t count = std::min(width * kernels_.lanes, args.count);
      for (std::int64_t r = 0; r < (args.second ? 2 : 1); ++r)
        for (std::int64_t i = 0; i < channels; ++i) {
          const std::int64_t k = task.group * g.group_filters + block * config_.channels + i;
          const std::int64_t row = task.row + 2 * pair + r;
          float* const values = args.sums + (r * config_.channels + i) * width * kernels_.lanes;
          for (std::int64_t j = 0; j < count; ++j) {
            if (std::isfinite(values[j])) continue;
            repair_sum(problem_, x, packed + g.packed_weights, {task.n, k, row, col + j}, values[j]);
            values[j] += args.bias[i];
          }
          kernels_.finish(values, 0, epilogue_,
                          outputs + (((task.n * problem_.k + k) * g.output_rows + row) * g.output_cols + col),
                          count);
        }
    };
    compute(task, pair, packed, memory, {}, cuts, check);
  }

  ConvProblem problem_;
  WinogradRowsConfig config_;
  Epilogue epilogue_;
  const DirectKernels& kernels_;
  const WinogradKernels& transforms_;
  const WinogradRowsKernels& rows_kernels_;
  const WinogradRowsTile& tile_;
  WinogradRowsGeometry geometry_;
  int threads_;
  std::vector<WinogradPartStep> steps_;
};

}  // namespace

const Algorithm& winograd_rows() {
  return once([] {
    return CpuAlgorithmOf<WinogradRowsConfig>({
        .name = "winograd_rows",
        .supports = winograd_rows_supports,
        .memory =
            [](const ConvProblem& problem, const WinogradRowsConfig& config) {
              return WinogradRowsGeometry(problem, config, config.vector_bits / 32).memory;
            },
        .smallest = winograd_rows_smallest,
        .accepts = winograd_rows_accepts,
        .candidates = winograd_rows_candidates,
        .cycles = winograd_rows_cycles,
        .executable = [](const ConvProblem& problem, const DeviceInfo& device,
                         const WinogradRowsConfig& config) -> std::unique_ptr<Executable> {
          return std::make_unique<WinogradRowsExecutable>(problem, config, device.units);
        },
        .multiply_adds =
            [](const ConvProblem& problem, const WinogradRowsConfig& config) {
              return WinogradRowsGeometry(problem, config, direct_kernels(config.vector_bits)->lanes)
                  .issued_multiply_adds;
            },
    });
  });
}

}  // namespace convtune::cpu
