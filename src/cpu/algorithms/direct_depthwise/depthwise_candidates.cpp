// See depthwise_candidates.h.
#include "cpu/algorithms/direct_depthwise/depthwise_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "contract/abilities.h"
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/base/caches.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/activation.h"

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

// The register tiles that have kernels of their own.
template <class T>
std::set<int> tile_choices(const ConvProblem& problem, const DepthwiseKernels<T>& kernels) {
  std::set<int> choices;
  if (problem.layout == Layout::nchw) {
    for (const int rows : {kAllRows, 1, 2, 4, 8})
      if (kernels.planes(plane_tile(problem, rows)) != nullptr) choices.insert(rows);
    return choices;
  }
  for (int pixels : {1, 2, 4, 6, 8, 11, kMostPixels}) {
    while (pixels > 1 && kernels.pixels(pixel_tile(problem), pixels) == nullptr) --pixels;
    choices.insert(pixels);
  }
  return choices;
}
std::set<int> tile_choices(const ConvProblem& problem, int bits) {
  return problem.dtype.x == DType::bf16 ? tile_choices(problem, *depthwise_kernels<Bf16>(bits))
                                        : tile_choices(problem, *depthwise_kernels<float>(bits));
}

// One plane of the output, row after row: multiply-adds, and vectors that come and go.
CpuWork row_work(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config,
                 const DepthwiseGeometry& g) {
  const PlaneKernels<float>& kernels =
      *depthwise_kernels<float>(config.vector_bits)->planes(plane_tile(problem, kAllRows));
  const std::int64_t vectors = (g.output_cols - 1) / g.lanes + 1,
                     strips = (vectors - 1) / kernels.vectors + 1;
  const std::int64_t open = (problem.r - 1) / problem.stride_h;
  const double rows = number(g.output_rows + g.row_tasks * open), row_vectors = rows * number(vectors);
  const bool leaves_cache = !caches_keep(problem, info), suits = leaves_cache == (config.stream != 0);
  CpuWork work;
  work.add(&CpuCosts::multiply_add, row_vectors * number(g.taps));
  work.add(&CpuCosts::planes_row_input,
           row_vectors * number(problem.t * problem.stride_h * problem.stride_w));
  work.add(suits ? &CpuCosts::planes_row_store : &CpuCosts::planes_row_store_amiss, row_vectors);
  work.add(&CpuCosts::planes_row_strip, rows * number(strips));
  work.add(&CpuCosts::planes_strip, number(strips * g.row_tasks));
  return work;
}

// One long row of the output.
template <class T>
CpuWork long_row_work(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config,
                      const DepthwiseGeometry& g) {
  const DepthwiseKernels<T>& kernels = *depthwise_kernels<T>(config.vector_bits);
  const std::int64_t sums = accumulators<T>(problem.stride_w), columns = kernels.lanes * sums;
  const double vectors = number((g.output_cols - 1) / columns + 1),
               most = number(kernels.planes(plane_tile(problem, 1))->vectors);
  const double blocks = std::ceil(vectors / most), width = vectors / blocks;
  // Taps of a phase use what the one before them has loaded, all but a vector, mostly across two lines.
  const std::int64_t loads = sizeof(T) == 4 ? problem.stride_w : 1,
                     phases = tap_phases(problem.s, problem.dilation_w, columns * problem.stride_w);
  const double taps = number(problem.s) / number(phases), calls = number(g.output_rows) * blocks;
  const double runs = calls * number(problem.r * phases);
  const bool leaves_cache = !caches_keep(problem, info), suits = leaves_cache == (config.stream != 0);
  CpuWork work;
  work.add_steps(runs, taps * width * number(sums),
                 (width + taps - 1) * number(loads) * cpu_costs().planes_loads_a_vector + taps, taps);
  work.add(&CpuCosts::planes_input_row, runs);
  work.add(&CpuCosts::planes_output, calls * width);
  work.add(suits ? &CpuCosts::planes_row_store : &CpuCosts::planes_row_store_amiss, calls * width);
  work.add(&CpuCosts::planes_call, calls);
  return work;
}

// One plane of the output, some rows at a time.
template <class T>
CpuWork plane_work(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config,
                   const DepthwiseGeometry& g) {
  const CpuCosts& costs = cpu_costs();
  const DepthwiseKernels<T>& kernels = *depthwise_kernels<T>(config.vector_bits);
  PlaneTile tile = plane_tile(problem, config.tile);
  while (tile.rows > 1 && (kernels.planes(tile) == nullptr || tile.rows / 2 >= g.output_rows)) tile.rows /= 2;
  if (tile.rows == 1 && tile.slides) return long_row_work<T>(problem, info, config, g);
  const std::int64_t vectors =
      ((g.output_cols - 1) / (kernels.lanes * accumulators<T>(problem.stride_w)) + 1) *
      accumulators<T>(problem.stride_w);
  const std::int64_t blocks =
      (vectors - 1) / (kernels.planes(tile)->vectors * accumulators<T>(problem.stride_w)) + 1;
  const double width = number(vectors) / number(blocks), r = number(problem.r);
  // The columns of the filter go by one at a time, with a stride of 2 two after the first. Most loads cross
  // a cache line; multiply-adds of a column follow each other; and something is lost with every row of the
  // input.
  const double stride_w = number(problem.stride_w);
  const double columns = problem.stride_w == 2 ? number(problem.s / 2 + 1) : number(problem.s);
  const double inputs = tile.rows == 1 ? r : number((tile.rows - 1) * problem.stride_h) + r;
  const double products = tile.rows * width * r * number(problem.s) / columns;
  const double calls = number((g.output_rows - 1) / tile.rows + 1) * number(blocks);
  const double runs = calls * columns * number(problem.t);
  CpuWork work;
  work.add_steps(runs, products, inputs * width * stride_w * costs.planes_loads_a_vector + r, r);
  work.add(&CpuCosts::planes_input_row, runs * inputs);
  // Lines are fetched ahead all at once: more than a core waits for at a time hold it up.
  const double fetched =
      tile.rows > 1 && problem.r < 7 ? number(tile.rows * problem.stride_h) * width * stride_w : 0;
  work.add(&CpuCosts::planes_fetched_line, calls * std::max(fetched - costs.planes_lines_at_once, 0.0));
  work.add(&CpuCosts::planes_output, calls * tile.rows * width);
  work.add(&CpuCosts::planes_call, calls);
  return work;
}

// One image of the output, channels last.
CpuWork pixel_work(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config,
                   const DepthwiseGeometry& g) {
  const CpuCosts& costs = cpu_costs();
  const double vectors = number(g.vectors), parts = number(g.parts), s = number(problem.s);
  const double tiles = number(g.output_rows) * number((g.output_cols - 1) / config.tile + 1);
  const double pixels = number(g.output_cols) * number(g.output_rows) / tiles;
  // Multiply-adds of a row of the filter, of which those of a pixel follow each other; as many widened or
  // shuffled words; and the weights.
  const double columns = (pixels - 1) * number(problem.stride_w) + s;
  const double rows = tiles * vectors * number(problem.t * problem.r * g.words);
  const double together = config.vectors == 0 ? vectors : std::min<double>(config.vectors, vectors);
  const bool leaves_cache = !caches_keep(problem, info), suits = leaves_cache == (config.stream != 0);
  CpuWork work;
  work.add_steps(rows, parts * pixels * s, 0, s);
  work.add(&CpuCosts::pixels_word, rows * columns * (parts + 1));
  work.add(&CpuCosts::load, rows * parts * s);
  work.add(suits ? &CpuCosts::pixels_store : &CpuCosts::pixels_store_amiss, tiles * vectors * pixels);
  work.add(&CpuCosts::pixels_part, tiles * vectors * pixels * parts);
  work.add(&CpuCosts::pixels_vector, tiles * vectors);
  work.add(&CpuCosts::pixels_call, tiles * vectors / together);
  // The input of a register tile that does not stay in the first cache for the next one.
  const double read = 4 * number(problem.t * problem.r) * columns * together * number(g.lanes);
  if (!pixels_slide(problem) && read > costs.pixels_of_l1 * CpuTarget(info).l1_bytes)
    work.repeat(costs.pixels_far);
  return work;
}

}  // namespace

double depthwise_cycles(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config) {
  const DepthwiseGeometry g(problem, config);
  CpuWork work = g.channels_last                  ? pixel_work(problem, info, config, g)
                 : config.tile == kAllRows        ? row_work(problem, info, config, g)
                 : problem.dtype.x == DType::bf16 ? plane_work<Bf16>(problem, info, config, g)
                                                  : plane_work<float>(problem, info, config, g);
  const std::int64_t planes = problem.n * (g.channels_last ? 1 : problem.k) * g.output_frames;
  work.repeat(number(planes));
  work.share({planes, g.output_rows, g.task_rows, g.output_cols, g.task_cols});
  return estimate_time(CpuTarget(info), work);
}

Support depthwise_supports(const ConvProblem& problem, const DeviceInfo& info) {
  const Abilities abilities{
      .types = {DType::f32, DType::bf16}, .activations = all_activations(), .residual = true, .depth = true};
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
  if (widest < 128) return Support::no("channels last, it is for a vector of channels or more");
  return Support::yes();
}

Support depthwise_accepts(const ConvProblem& problem, const DeviceInfo& info, const DepthwiseConfig& config) {
  if (config.vector_bits > widest_bits(problem, info) || config.vector_bits < least_bits(problem))
    return Support::no(fmt::format("vector_bits={} do not fit its channels", config.vector_bits));
  if (config.rows < 0 || config.vectors < 0) return Support::no("rows and vectors must be at least 0");
  if (config.cols < 0 ||
      (config.cols != 0 && problem.layout == Layout::nchw && (config.tile != 1 || config.cols % 32 != 0)))
    return Support::no("cols must be at least 0, channels first a multiple of 32 with tile=1");
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
    return Support::no(fmt::format("tile must be {}", planes ? "0, 1, 2, 4 or 8" : "1 to 14"));
  const std::int64_t line = 64 / size_of(problem.dtype.y);
  const std::int64_t strip_floats = all_rows ? row_kernels->vectors * config.vector_bits / 32 : 0;
  const bool whole_rows = problem.q() % line == 0;
  const bool lines = !planes ? config.vector_bits == 512 && problem.k % line == 0
                     : config.tile == 1
                         ? whole_rows && problem.dtype.y == DType::f32 && config.vector_bits >= 256
                     : all_rows ? problem.q() <= strip_floats || (whole_rows && strip_floats % line == 0) ||
                                      DepthwiseGeometry(problem, config).buffered_rows > 0
                                : false;
  if (config.stream < 0 || config.stream > 1 || (config.stream == 1 && !lines))
    return Support::no("stream must be 0, or 1 where whole lines are stored");
  return Support::yes();
}

std::vector<DepthwiseConfig> depthwise_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  std::set<int> row_choices = doubled(1, problem.p(), 64), col_choices{0};
  row_choices.insert(0);
  // Tasks are parts of a long row where planes are too few for the threads.
  if (problem.p() == 1 && (problem.layout == Layout::nhwc || problem.n * problem.k < 4 * info.units))
    col_choices.merge(doubled(64, problem.q(), 4096));
  const int widest = widest_bits(problem, info);
  std::vector<Ranked<DepthwiseConfig>> all;
  for (int bits = widest; bits >= 128 && bits >= widest / 2; bits /= 2) {
    if (!depthwise_kernels<float>(bits)) continue;
    for (const int tile : tile_choices(problem, bits))
      for (const int rows : row_choices)
        for (const int vectors : {0, 1, 2, 4}) {
          if (vectors * bits / (8 * size_of(problem.dtype.x)) >= problem.c && vectors != 0) continue;
          for (const int stream : {0, 1})
            for (const int cols : col_choices) {
              const DepthwiseConfig config{bits, rows, tile, vectors, stream, cols};
              if (depthwise_accepts(problem, info, config))
                all.push_back({depthwise_cycles(problem, info, config), config});
            }
        }
  }
  sort_ranked(all);
  return configs_of(all);
}

}  // namespace convtune::cpu
