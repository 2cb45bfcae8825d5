// See depthwise_candidates.h.
#include "cpu/algorithms/depthwise/depthwise_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "contract/abilities.h"
#include "cpu/algorithms/depthwise/depthwise_kernels.h"
#include "cpu/base/caches.h"
#include "cpu/model/estimates.h"
#include "cpu/tile/instruction_sets.h"

namespace convtune::cpu {
namespace {

double number(std::int64_t count) {
  return static_cast<double>(count);
}

// The widest vectors that the channels fill, where they lie in lanes.
int widest_bits(const ConvProblem& problem, const DeviceInfo& info) {
  int bits = widest_vector_bits(info);
  if (problem.layout == Layout::nhwc)
    while (bits >= 128 && problem.c < bits / (8 * size_of(problem.dtype.x))) bits /= 2;
  return bits;
}

// The narrowest vectors that a group fits, of bf16 in pairs the only ones that are multiplied.
int least_bits(const ConvProblem& problem) {
  const auto group = static_cast<int>(std::min<std::int64_t>(problem.c / problem.groups, 1024));
  if (group == 1) return 128;
  return problem.dtype.x == DType::bf16 ? std::max(512, 16 * group) : std::max(128, 32 * group);
}

// One plane of the output, row after row: two multiply-adds a cycle, and what comes and goes.
double row_cycles(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config,
                  const DepthwiseGeometry& g) {
  const PlaneKernels<float>& kernels =
      *depthwise_kernels<float>(config.vector_bits)->planes(plane_tile(problem, kAllRows));
  const std::int64_t vectors = (g.output_cols - 1) / g.lanes + 1,
                     strips = (vectors - 1) / kernels.vectors + 1;
  const std::int64_t open = (problem.r - 1) / problem.stride_h;
  const double rows = number(g.output_rows + g.row_tasks * open);
  const double moved = number(problem.stride_h * problem.stride_w);
  const bool leaves_cache = !caches_keep(problem, info);
  const double store = leaves_cache == (config.stream != 0) ? 1 : 3;
  return rows * (number(vectors) * (number(g.taps) / 2 + 1.3 * moved + store) + 4 * number(strips)) +
         100 * number(strips * g.row_tasks);
}

// One plane of the output.
template <class T>
double plane_cycles(const ConvProblem& problem, const DepthwiseConfig& config, const DepthwiseGeometry& g) {
  const DepthwiseKernels<T>& kernels = *depthwise_kernels<T>(config.vector_bits);
  PlaneTile tile = plane_tile(problem, config.tile);
  while (tile.rows > 1 && (kernels.planes(tile) == nullptr || tile.rows / 2 >= g.output_rows)) tile.rows /= 2;
  const std::int64_t vectors =
      ((g.output_cols - 1) / (kernels.lanes * accumulators<T>(problem.stride_w)) + 1) *
      accumulators<T>(problem.stride_w);
  const std::int64_t blocks =
      (vectors - 1) / (kernels.planes(tile)->vectors * accumulators<T>(problem.stride_w)) + 1;
  const double width = number(vectors) / number(blocks), r = number(problem.r);
  // The columns of the filter go by one at a time, with a stride of 2 two after the first. Two multiply-adds
  // or two loads a cycle, of which most cross a cache line; nothing is faster than the latency of the
  // multiply-adds that follow each other; and something is lost with every row of the input.
  const double stride_w = number(problem.stride_w);
  const double columns = problem.stride_w == 2 ? number(problem.s / 2 + 1) : number(problem.s);
  const double inputs = tile.rows == 1 ? r : number((tile.rows - 1) * problem.stride_h) + r;
  const double products = tile.rows * width * r * number(problem.s) / columns;
  const double column =
      std::max({products / 2, (inputs * width * stride_w * 1.9 + r) / 2, 4 * r}) + 3 * inputs;
  // What is fetched ahead is asked for at once: more lines than a core waits for at a time hold it up.
  constexpr double kLinesAtOnce = 16;
  const double fetched =
      tile.rows > 1 && problem.r < 7 ? number(tile.rows * problem.stride_h) * width * stride_w : 0;
  const double tiles = number((g.output_rows - 1) / tile.rows + 1);
  return tiles * number(blocks) *
         (columns * column + 4.5 * std::max(fetched - kLinesAtOnce, 0.0) + 3 * tile.rows * width + 20);
}

// One image of the output, channels last.
double pixel_cycles(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config,
                    const DepthwiseGeometry& g) {
  const double vectors = number(g.vectors), parts = number(g.parts), s = number(problem.s);
  const double tiles = number(g.output_rows) * number((g.output_cols - 1) / config.tile + 1);
  const double pixels = number(g.output_cols) * number(g.output_rows) / tiles;
  // Two multiply-adds or loads a cycle, and as many widened or shuffled words; of a row of the filter no
  // fewer than the latency of those that follow each other.
  const double columns = (pixels - 1) * number(problem.stride_w) + s;
  const double row = std::max(parts * pixels * s / 2, 4 * s) + columns * (parts + 1) / 4 + parts * s / 2;
  const double together = config.vectors == 0 ? vectors : std::min<double>(config.vectors, vectors);
  const bool leaves_cache = !caches_keep(problem, info);
  const double store = leaves_cache == (config.stream != 0) ? 3 : 6;
  double cycles = tiles * (vectors * (number(problem.r * g.words) * row + pixels * (store + 2 * parts) + 15) +
                           25 * vectors / together);
  // What a register tile reads does not stay in the first cache for the next one.
  const double read = 4 * number(problem.r) * columns * together * number(g.lanes);
  if (read > number(l1_bytes_of(info)) / 2) cycles *= 1.2;
  return cycles;
}

}  // namespace

double depthwise_cycles(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config) {
  const DepthwiseGeometry g(problem, config);
  double cycles = number(problem.n);
  if (g.channels_last) {
    cycles *= pixel_cycles(problem, info, config, g);
  } else if (config.tile == kAllRows) {
    cycles *= number(problem.k) * row_cycles(problem, info, config, g);
  } else {
    cycles *= number(problem.k) * (problem.dtype.x == DType::bf16 ? plane_cycles<Bf16>(problem, config, g)
                                                                  : plane_cycles<float>(problem, config, g));
  }
  const TaskGrid grid{problem.n * (g.channels_last ? 1 : problem.k), g.output_rows, g.task_rows};
  return cycles * grid.longest_share(info.units);
}

Support depthwise_supports(const ConvProblem& problem, const DeviceInfo& info) {
  const Abilities abilities{.types = {DType::f32, DType::bf16},
                            .activations = {Activation::none, Activation::relu, Activation::clip},
                            .residual = true};
  if (Support support = within(abilities, problem); !support) return support;
  const std::int64_t group = problem.c / problem.groups;
  if (problem.layout == Layout::nchw && group != 1) return Support::no("it is for one input channel a group");
  if (problem.layout == Layout::nhwc && problem.k != problem.c)
    return Support::no("channels last, it is for as many output channels a group as input channels");
  if (group != 1 && (group & (group - 1)) != 0)
    return Support::no("channels last, it is for groups of 1, 2, 4, 8, ... channels");
  if (group != 1 && problem.dtype.x == DType::bf16 && !multiplies_bf16())
    return Support::no("bf16 in groups of several channels needs a processor with avx512_bf16");
  if (problem.layout == Layout::nchw && problem.stride_w > 2)
    return Support::no("channels first, it is for strides of 1 and 2 along a row");
  // Columns are compared as numbers of 32 bits.
  if (const double columns = number(problem.w) + number(problem.pad_left) + number(problem.pad_right);
      columns > 0x1p30)
    return Support::no(fmt::format("a padded row of {:.0f} columns is longer than it counts", columns));
  const int widest = widest_bits(problem, info);
  if (widest >= 128 && widest < least_bits(problem))
    return Support::no(fmt::format("groups of {} channels are wider than its vectors", group));
  if (widest < 128)
    return Support::no(widest_vector_bits(info) == 0
                           ? fmt::format("it has no code for the instruction set '{}'", info.isa)
                           : "channels last, it is for a vector of channels or more");
  return Support::yes();
}

Support depthwise_accepts(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config) {
  if (Support support = depthwise_supports(problem, info); !support) return support;
  if (config.vector_bits > widest_bits(problem, info) || config.vector_bits < least_bits(problem) ||
      !depthwise_kernels<float>(config.vector_bits))
    return Support::no(fmt::format("vector_bits={} is not to be had here", config.vector_bits));
  if (config.rows < 0 || config.vectors < 0) return Support::no("rows and vectors must be at least 0");
  if (config.vectors != 0 && problem.layout == Layout::nchw)
    return Support::no("vectors is for channels that are last");
  const bool planes = problem.layout == Layout::nchw, all_rows = planes && config.tile == kAllRows;
  const PlaneKernels<float>* const row_kernels =
      all_rows && problem.dtype.x == DType::f32
          ? depthwise_kernels<float>(config.vector_bits)->planes(plane_tile(problem, kAllRows))
          : nullptr;
  if (all_rows && !row_kernels)
    return Support::no("tile=0 is for f32 with AVX-512 or AVX2, square filters of 3, 5 and 7, no dilation");
  if ((config.tile < 1 && !all_rows) || config.tile > (planes ? kMostRows : kMostPixels) ||
      (planes && (config.tile & (config.tile - 1)) != 0))
    return Support::no(fmt::format("tile must be {}", planes ? "0, 1, 2, 4 or 8" : "1 to 8"));
  const std::int64_t line = 64 / size_of(problem.dtype.y);
  const std::int64_t strip_floats = all_rows ? row_kernels->vectors * config.vector_bits / 32 : 0;
  const bool lines = planes ? all_rows && (problem.q() <= strip_floats ||
                                           (problem.q() % line == 0 && strip_floats % line == 0))
                            : config.vector_bits == 512 && problem.k % line == 0;
  if (config.stream < 0 || config.stream > 1 || (config.stream == 1 && !lines))
    return Support::no("stream must be 0, or 1 where whole lines are stored");
  return Support::yes();
}

std::vector<DepthwiseConfig> depthwise_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  std::set<int> row_choices{0};
  for (int rows = 1; rows < problem.p() && rows <= 64; rows *= 2) row_choices.insert(rows);
  const int widest = widest_bits(problem, info);
  std::vector<std::pair<double, DepthwiseConfig>> all;
  for (int bits = widest; bits >= 128 && bits >= widest / 2; bits /= 2)
    for (const int rows : row_choices)
      for (const int tile : {kAllRows, 1, 2, 4, 6, 8})
        for (const int vectors : {0, 1, 2, 4}) {
          if (vectors * bits / (8 * size_of(problem.dtype.x)) >= problem.c && vectors != 0) continue;
          for (const int stream : {0, 1}) {
            const DepthwiseConfig config{bits, rows, tile, vectors, stream};
            if (depthwise_accepts(problem, info, config))
              all.emplace_back(depthwise_cycles(problem, info, config), config);
          }
        }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<DepthwiseConfig> configs;
  for (const auto& [cycles, config] : all) configs.push_back(config);
  return configs;
}

}  // namespace convtune::cpu
