// See winograd_candidates.h; which precision allows which tile: docs/decisions/0038.
#include "cpu/algorithms/winograd/winograd_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/base/caches.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/winograd/winograd_kernels.h"
#include "cpu/tile/winograd/winograd_precision.h"
#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {
namespace {

constexpr std::size_t kMostCandidates = 32;
constexpr int kChunks[] = {32, 64, 128};

// One task's work to that of all, and their grid.
void share(const WinogradGeometry& g, const ConvProblem& problem, CpuWork& work) {
  const TaskGrid grid{problem.groups, g.all_tiles, g.tiles, 1, 1, g.filter_blocks, g.task_filter_blocks};
  work.repeat(grid.work(grid.tasks()) / std::max(grid.work(1), 1.0));
  work.share(grid);
}

// 3x3 filters of stride 1.
CpuWork work_of_whole(const ConvProblem& problem, const CpuTarget& target, const WinogradConfig& config,
                      const WinogradGeometry& g) {
  const int lanes = direct_kernels(config.vector_bits)->lanes;
  const CpuCosts& costs = cpu_costs();
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const double products = number(g.products), channels = number(g.group_channels);
  CpuWork work;
  // A product of all channels: multiply-adds, or the loads of broadcasts and vectors, a register tile at a
  // time.
  const bool last = problem.layout == Layout::nhwc;
  const double vectors = number((g.tiles - 1) / lanes + 1), task_filters = number(g.task_filter_blocks);
  const double width = last ? number(g.block_filters / lanes)
                            : vectors / std::ceil(vectors / static_cast<double>(config.vectors));
  const double sums = config.channels * width, loads = config.channels + 2 * width;
  const double calls =
      products * task_filters * (last ? number((g.tiles - 1) / config.channels + 1) : vectors / width);
  work.add_steps(calls * channels, sums, loads);
  work.add(&CpuCosts::winograd_load, calls * channels * loads);
  work.add(&CpuCosts::winograd_sum, calls * sums);
  work.add(&CpuCosts::winograd_call, calls);
  // Transforms: a load, a store and an operation or two of each number twice; pieces of rows.
  const double runs = number(g.tiles) / number(std::min(g.image_cols, g.tiles)) + 1;
  work.add(&CpuCosts::winograd_input_vector, channels * vectors * products);
  work.add(&CpuCosts::winograd_input_piece, channels * runs * number(g.inputs));
  work.add(&CpuCosts::winograd_input_channel, channels);
  const double filters = task_filters * number(g.block_filters);
  work.add(&CpuCosts::winograd_output_vector, filters * vectors * products);
  work.add(&CpuCosts::winograd_output_piece, filters * runs * number(g.m));
  work.add(&CpuCosts::winograd_output_channel, filters);
  // V that does not fit into the second cache comes from the third, once a chunk; weights come from there
  // once a task, or from memory. With AVX2, on a Zen 3, that takes longer, and V is written there too.
  const double v_bytes = 4 * products * channels * number(g.stride);
  const double chunks = task_filters / number(g.chunk_blocks);
  if (v_bytes > costs.winograd_v_of_l2 * target.l2_bytes) {
    if (config.vector_bits == 512)
      work.add(&CpuCosts::winograd_v_byte, v_bytes * chunks);
    else
      work.add(&CpuCosts::winograd_v_byte_narrow, v_bytes * (chunks + 2));
  }
  const double weights = 4 * products * channels * number(g.block_filters);
  const bool in_cache =
      weights * number(g.filter_blocks * problem.groups) < costs.weights_of_l3 * target.l3_bytes;
  work.add(in_cache ? &CpuCosts::winograd_weight_byte : &CpuCosts::winograd_weight_byte_far,
           weights * task_filters);
  const double m_bytes = 4 * products * number(g.chunk_filters * g.stride);
  if (m_bytes > costs.winograd_m_of_l2 * target.l2_bytes)
    work.add(&CpuCosts::winograd_m_byte, m_bytes * chunks);
  share(g, problem, work);
  return work;
}

// Other filters than 3x3 of stride 1: parts of them (winograd_parts.h).
CpuWork work_of_parts(const ConvProblem& problem, const CpuTarget& target, const WinogradConfig& config,
                      const WinogradGeometry& g) {
  const int lanes = direct_kernels(config.vector_bits)->lanes;
  const CpuCosts& costs = cpu_costs();
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const double vectors = number((g.tiles - 1) / lanes + 1), blocks = std::ceil(vectors / config.vectors);
  const double width = vectors / blocks, sums = config.channels * width, products = number(g.products);
  const double channels = number(g.first_channel.back()), loads = config.channels + width;
  const double filters = number(g.task_filter_blocks * g.block_filters);
  const double calls = number(g.task_filter_blocks) * blocks;
  CpuWork work;
  work.add_steps(calls * channels, sums, loads);
  work.add(&CpuCosts::parts_load, calls * channels * loads);
  work.add(&CpuCosts::parts_sum, calls * products * sums);
  work.add(&CpuCosts::parts_call, calls * products);
  work.add(&CpuCosts::parts_output_vector, filters * vectors);
  // Rows, which tiles one above the other read twice; columns; what a task's ends add to its runs.
  const double runs = number(g.tiles) / number(std::min(g.image_cols, g.tiles)) + 1;
  const double along = number(std::ssize(g.cols_axis.products)), phases = number(g.m * problem.stride_w);
  const double row_runs = number(g.group_channels * g.window_rows) * runs;
  work.add(&CpuCosts::parts_run, row_runs);
  work.add(&CpuCosts::parts_row_vector, row_runs * (vectors / runs + 1) * (phases + along));
  work.add(&CpuCosts::parts_column_vector, channels * vectors);
  // Sums that do not stay in the first cache, V and weights that do not stay in the second.
  if (4 * products * number(g.chunk_filters) * width * lanes > costs.parts_sums_bytes)
    work.add(&CpuCosts::parts_sums_vector, filters * vectors);
  const double kept = 4 * channels * (number(g.stride) + filters);
  if (kept > costs.parts_v_of_l2 * target.l2_bytes) {
    if (g.together > 1)
      work.add(&CpuCosts::parts_v_byte, kept * number(g.task_filter_blocks) / number(g.chunk_blocks));
    else  // weights, once for each block of vectors
      work.add(&CpuCosts::parts_weight_byte, 4 * channels * filters * blocks);
  }
  share(g, problem, work);
  return work;
}

double estimate(const ConvProblem& problem, const DeviceInfo& info, const WinogradConfig& config,
                const WinogradGeometry& geometry) {
  const CpuTarget target(info);
  return estimate_time(
      target, (geometry.decomposed ? work_of_parts : work_of_whole)(problem, target, config, geometry));
}

// Whole rows of tiles a task, and outputs past the caches where they do not stay there.
template <class Add>
void for_each_of_parts(const ConvProblem& problem, const DeviceInfo& info, const Add& add) {
  constexpr int kFewestTiles = 48, kMostTiles = 512;
  const int bits = widest_vector_bits(info);
  const std::int64_t cols = (problem.q() + 1) / 2, rows = (problem.p() + 1) / 2 * problem.n,
                     k = problem.k / problem.groups;
  const int stream = caches_keep(problem, info) ? 0 : 1;
  for (const TileShape& shape : direct_kernels(bits)->tiles)
    for (std::int64_t of_task = 1; of_task == 1 || of_task < 2 * rows; of_task *= 2) {
      const std::int64_t tiles = cols * of_task;
      const bool only = of_task == 1 && tiles > kMostTiles, last = of_task >= rows;
      if (!only && (tiles > kMostTiles || (tiles < kFewestTiles && !last))) continue;
      for (const int chunk : {1, 2, 4})
        for (const int parts : filter_parts(k)) {
          WinogradConfig config{.vector_bits = bits,
                                .tile = 2,
                                .channels = shape.rows,
                                .vectors = shape.vectors,
                                .tiles = static_cast<int>(std::min<std::int64_t>(tiles, kMostTiles)),
                                .chunk = chunk * shape.rows,
                                .stream = stream};
          if (parts > 1) config.filters = static_cast<int>((k - 1) / parts + 1);
          add(config);
        }
    }
}

}  // namespace

double winograd_cycles(const ConvProblem& problem, const DeviceInfo& info, const WinogradConfig& config) {
  return estimate(problem, info, config, WinogradGeometry(problem, config, config.vector_bits / 32));
}

WinogradConfig winograd_smallest(const ConvProblem&, const DeviceInfo& info) {
  const int bits = widest_vector_bits(info);
  return {.vector_bits = bits, .channels = 4, .vectors = 3, .tiles = 3 * bits / 32, .chunk = kChunks[0]};
}

Support winograd_accepts(const ConvProblem& problem, const DeviceInfo&, const WinogradConfig& config) {
  if (!find_tile(direct_kernels(config.vector_bits)->tiles, config.channels, config.vectors))
    return Support::no(fmt::format("there is no {}x{} register tile", config.channels, config.vectors));
  if (is_decomposed(problem) && !winograd_multiply(config.vector_bits, config.channels, config.vectors))
    return Support::no(
        fmt::format("no {}x{} register tile makes all products", config.channels, config.vectors));
  if (problem.layout == Layout::nhwc && config.channels != kTilesOfPixels)
    return Support::no(fmt::format("channels must be {} where channels are last", kTilesOfPixels));
  if (config.tile != 2 && config.tile != 4) return Support::no("tile must be 2 or 4");
  if (config.tile == 4 && problem.layout != Layout::nhwc) return Support::no("tile=4 is for NHWC");
  if (config.tile == 4 && problem.precision == Precision::fp32)
    return Support::no("tile=4 makes larger errors than fp32 allows; precision=tf32 allows them");
  if (config.tile == 4 &&
      std::max({problem.pad_top, problem.pad_left, problem.pad_bottom, problem.pad_right}) >= kWinogradTaps)
    return Support::no("tile=4 would find rounding errors where an output has nothing but padding");
  if (config.stream < 0 || config.stream > 1 || (config.stream == 1 && !is_decomposed(problem)))
    return Support::no("stream must be 0, or 1 where a filter is cut into parts");
  if (config.tiles < 1 || config.filters < 0 || config.chunk < 1)
    return Support::no("tiles and chunk must be at least 1; filters at least 0");
  return Support::yes();
}

std::vector<WinogradConfig> winograd_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  const std::int64_t k = problem.k / problem.groups;
  const bool last = problem.layout == Layout::nhwc;
  const int widest = widest_vector_bits(info);
  std::vector<Ranked<WinogradConfig>> all;
  const auto add = [&](const WinogradConfig& config) {
    if (!winograd_accepts(problem, info, config)) return;
    const WinogradGeometry geometry(problem, config, config.vector_bits / 32);
    if (geometry.memory.fits()) all.push_back({estimate(problem, info, config, geometry), config});
  };
  if (is_decomposed(problem)) for_each_of_parts(problem, info, add);
  for (int bits = is_decomposed(problem) ? 0 : widest; bits >= 128 && bits >= widest / 2; bits /= 2) {
    const DirectKernels* kernels = direct_kernels(bits);
    if (!kernels) continue;
    for (const TileShape& shape : kernels->tiles) {
      // Narrower register tiles wait for their loads, and one far wider than the filters is mostly junk. 4x3
      // is always there.
      const bool wasted = !last && shape.rows > 4 && shape.rows >= 2 * k;
      if (shape.rows * shape.vectors < 12 || shape.rows > 12 || shape.vectors > 6 || wasted) continue;
      const int unit = last ? 16 : shape.vectors * kernels->lanes;
      for (const int m : {2, 4})
        for (int tiles = unit; tiles <= 16 * unit; tiles *= 2)
          for (const int parts : filter_parts(k))
            for (const int chunk : kChunks) {
              WinogradConfig config{bits, m, shape.rows, shape.vectors, tiles, 0, chunk};
              if (!winograd_accepts(problem, info, config)) continue;
              const WinogradGeometry whole(problem, config, kernels->lanes);
              const std::int64_t blocks = (whole.filter_blocks - 1) / parts + 1;
              if (parts > whole.filter_blocks || (chunk > kChunks[0] && chunk >= 2 * k)) continue;
              if (parts > 1) config.filters = static_cast<int>(blocks * whole.block_filters);
              if (tiles > unit && tiles >= 2 * whole.all_tiles) continue;
              add(config);
            }
    }
  }
  sort_ranked(all);
  keep_first(all, kMostCandidates);
  return configs_of(all);
}

}  // namespace convtune::cpu
