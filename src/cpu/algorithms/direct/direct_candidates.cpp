// See direct_candidates.h.
#include "cpu/algorithms/direct/direct_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "contract/abilities.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/model/store_work.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/activation.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kFewChannels = 4;
constexpr std::size_t kVaried = 8;  // best configs of a register tile, of which variants are made

// Bytes of the second cache that a tile goes through: its window, staged or read as it lies. One far larger
// than that cache has lost its purpose.
std::int64_t touched_bytes(const DirectExtents& e) {
  constexpr std::int64_t kSlack = 32;  // floats of a plane
  const std::int64_t plane = product_of(e.tile_rows + e.rows_extent.halo, e.pitch) + kSlack;
  return 4 * (product_of(e.group_channels, e.rows_extent.phases, e.cols_extent.phases, plane) + e.block);
}

// Adds `calls` of a register tile's code for `width` of its vectors.
void add_calls(CpuWork& work, const DirectConfig& config, std::int64_t width, const DirectExtents& e,
               double calls) {
  const auto channels = static_cast<double>(config.channels), vectors = static_cast<double>(width);
  // Loads of a window mostly cross a cache line.
  const double loads = channels + 2 * vectors, taps = calls * static_cast<double>(e.taps);
  work.add_steps(taps, channels * vectors, loads);
  work.add(&CpuCosts::direct_load, taps * loads);
  work.add(&CpuCosts::direct_tap, taps);
  work.add(&CpuCosts::direct_call, calls);
}

double estimate(const ConvProblem& problem, const DeviceInfo& info, const DirectConfig& config,
                const DirectExtents& e, int lanes) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const CpuTarget target(info);
  const CpuCosts& costs = cpu_costs();
  const double images = number(problem.n) * number(e.groups), filters = images * number(e.group_filters);
  const bool past_caches = config.stream != 0;
  CpuWork work;

  // The kernels: a line's vectors go by in blocks of nearly equal width, two widths at most.
  double pieces = 0, outputs = 0, shared_lines = 0;
  for (const DirectLines& line : e.lines) {
    if (line.count == 0) continue;
    const std::int64_t vectors = (line.length - 1) / lanes + 1;
    const LineBlocks blocks(vectors, config.vectors, e.line_unit);
    for (const auto& [count, units] :
         {std::pair{blocks.count - blocks.wider, blocks.width}, std::pair{blocks.wider, blocks.width + 1}})
      if (count != 0)
        add_calls(work, config, units * blocks.unit, e,
                  images * number(e.filter_blocks) * number(line.count * count));
    pieces += number(line.count) * number(line.rows + blocks.count - 1);
    outputs += number(line.count) * number(vectors);
    if (line.length * size_of(problem.dtype.y) % kCacheLineBytes != 0) shared_lines += number(line.count);
    if (e.straight)
      add_cut_lines(work, problem, blocks, lanes * size_of(problem.dtype.y), past_caches,
                    filters * number(line.count));
  }

  // Stores: straight, or through a buffer that is cut into pieces of rows. Channels last, one output at a
  // time.
  if (!e.straight) work.add(&CpuCosts::direct_piece, filters * pieces);
  if (problem.layout == Layout::nhwc)
    work.add(&CpuCosts::direct_pixel, filters * number(e.output_rows * e.output_cols));
  // Planes that lie a multiple of many pages apart meet in the same sets of the translations of addresses.
  constexpr std::int64_t kManyPages = 256 * 1024, kFewFilters = 32;
  const std::int64_t element = size_of(problem.dtype.y);
  if (e.straight && element * e.output_rows * e.output_cols % kManyPages == 0 &&
      e.task_filter_blocks * config.channels > kFewFilters)
    work.add(&CpuCosts::direct_far_plane, filters * outputs);
  const double task_bytes =
      number(element * e.tile_rows * e.tile_cols) * number(e.task_filter_blocks * config.channels);
  add_stores(work, problem, info, past_caches, task_bytes, filters * outputs);
  if (e.straight) add_meeting_stores(work, problem, info, config.stream, filters * outputs);
  // A line of the cache that a piece of a row shares with the next one goes to memory twice.
  if (past_caches) work.add(&CpuCosts::direct_shared_line, filters * shared_lines);

  // Staging, and a window brought from the core's second cache to its first for every task. Threads that
  // share a tile each stage it.
  const double windows = images * number(e.row_tiles * e.col_tiles);
  const double rows = number(e.group_channels * (e.tile_rows + e.rows_extent.halo) * e.rows_extent.phases);
  const double floats = rows * number(e.pitch * e.cols_extent.phases);
  const double read = windows * number(e.filter_tasks) * floats;
  if (config.staged == 0) {
    // Read where it lies, a line of every channel in turn.
    work.add(&CpuCosts::direct_unstaged, read);
    if (planes_meet(problem)) {
      constexpr std::int64_t kFloatsALine = kCacheLineBytes / 4;
      work.add(&CpuCosts::direct_met_line, windows * floats * number(e.filter_blocks) / number(kFloatsALine));
    }
  } else {
    const bool vectorized = problem.layout == Layout::nchw &&
                            (e.words.stride_w == 1 || ((e.words.stride_w == 2 || e.words.stride_w == 4) &&
                                                       e.cols_extent.phases == e.words.stride_w));
    const double shared = std::max(1.0, number(info.units) * number(e.filter_tasks) / number(e.tasks + 1));
    work.add(&CpuCosts::direct_window_row, shared * windows * rows);
    work.add(e.shifted    ? &CpuCosts::direct_slid
             : vectorized ? &CpuCosts::direct_copied
                          : &CpuCosts::direct_gathered,
             shared * windows * floats);
    work.add(&CpuCosts::direct_window_read, read);
    // Other data in the second cache push part of a window out of it, long before it is full.
    const double held = costs.direct_window_of_l2;
    work.add(&CpuCosts::direct_window_far,
             read * std::clamp((4 * floats / target.l2_bytes - held) / (1 - held), 0.0, 1.0));
    add_short_pieces(work, problem, e.tile_rows, windows);
    // Nobody has fetched a thread's first window ahead.
    work.add(&CpuCosts::direct_first_window, floats * number(std::min<std::int64_t>(info.units, e.tasks)));
  }

  work.share({problem.n * e.groups, e.output_rows, e.tile_rows, e.output_cols, e.tile_cols, e.filter_blocks,
              e.task_filter_blocks});
  return estimate_time(target, work);
}

}  // namespace

double direct_cycles(const ConvProblem& problem, const DeviceInfo& info, const DirectConfig& config) {
  const int lanes = direct_kernels(config.vector_bits)->lanes;
  return estimate(problem, info, config, DirectExtents(problem, config, lanes), lanes);
}

Support direct_supports(const ConvProblem& problem, const DeviceInfo& info) {
  const Abilities abilities{
      .types = {DType::f32, DType::bf16}, .activations = all_activations(), .residual = true};
  if (Support support = within(abilities, problem); !support) return support;
  const int bits = widest_vector_bits(info);
  if (problem.dtype.x == DType::bf16) {
    if (bits < 512 || !multiplies_bf16())
      return Support::no("it multiplies bf16 on processors with avx512_bf16 only");
    if (problem.layout != Layout::nchw) return Support::no("of bf16, it is for NCHW");
    if ((problem.stride_w != 1 && problem.stride_w % 2 != 0) || problem.dilation_w != 1)
      return Support::no("of bf16, it is for strides of 1 or even ones along a row, without dilation there");
  }
  return Support::yes();
}

DirectConfig direct_smallest(const ConvProblem&, const DeviceInfo& info) {
  const int bits = widest_vector_bits(info);
  return {.vector_bits = bits, .channels = 1, .vectors = 8, .rows = 1, .cols = bits / 32};
}

namespace {

// True where rows of x may be windows as they lie: a tile is whole vectors, or longer than a register tile.
bool may_stay(const ConvProblem& a, const DirectConfig& config, int lanes) {
  constexpr double kMostOffset = 0x1p31;
  const std::int64_t rows = std::clamp<std::int64_t>(config.rows, 1, a.h), last = (a.h - 1) % rows + 1;
  const auto fits = [&](std::int64_t length) {
    return length % lanes == 0 || length > std::int64_t{config.vectors} * lanes;
  };
  return a.layout == Layout::nchw && a.dtype.x == DType::f32 && a.r == 1 && a.s == 1 && a.stride_h == 1 &&
         a.stride_w == 1 && a.p() == a.h && a.q() == a.w && a.pad_top == 0 && a.pad_left == 0 &&
         config.flat == 1 && config.cols == 0 && fits(rows * a.w) && fits(last * a.w) &&
         static_cast<double>(a.c / a.groups) * static_cast<double>(a.h * a.w) < kMostOffset;
}

// True where the window may have a copy for each column of the filter.
bool may_shift(const ConvProblem& a, const DirectConfig& config) {
  return a.layout == Layout::nchw && a.dtype.x == DType::f32 && a.stride_w == 1 && a.s > 1 &&
         config.flat == 1 && config.cols == 0;
}

}  // namespace

Support direct_accepts(const ConvProblem& problem, const DeviceInfo&, const DirectConfig& config) {
  const DirectKernels* const kernels = direct_kernels(config.vector_bits);
  if (!find_tile(direct_tiles(*kernels, problem), config.channels, config.vectors))
    return Support::no(fmt::format("there is no {}x{} register tile", config.channels, config.vectors));
  if (config.rows < 1 || config.cols < 0 || config.filters < 0)
    return Support::no("rows must be at least 1; cols and filters at least 0");
  if (config.flat < 0 || config.flat > 1 || config.stream < 0 || config.stream > 1)
    return Support::no("flat and stream must be 0 or 1");
  if (config.staged < 0 || config.staged > 2 ||
      (config.staged == 0 && !may_stay(problem, config, kernels->lanes)))
    return Support::no("staged must be 1, or 0 for 1x1 filters of f32 planes and tiles of whole vectors");
  if (config.staged == 2 && !may_shift(problem, config))
    return Support::no("staged=2 is for NCHW of f32 with a stride of 1 along rows, flat=1 and cols=0");
  if (config.flat == 0 && problem.layout != Layout::nchw)
    return Support::no("flat=0 stores rows of NCHW outputs");
  if (config.stream == 0) return Support::yes();
  const DirectExtents extents(problem, config, kernels->lanes);
  if (!extents.straight)
    return Support::no(
        "stream=1 needs outputs that go straight from registers: flat=0, or no halo between rows");
  return Support::yes();
}

std::vector<DirectConfig> direct_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  const std::int64_t p = problem.p(), q = problem.q(), k = problem.k / problem.groups;

  std::set<int> row_choices = doubled(1, p, 64), col_choices = doubled(64, q, 256);
  if (p <= 256) row_choices.insert(static_cast<int>(p));
  col_choices.insert(0);

  // The best by estimate of every register tile, fewer of the narrower instruction sets: enough to
  // climb from, few enough to verify whole.
  const int widest = widest_vector_bits(info);
  std::vector<Ranked<DirectConfig>> all, of_tile;
  for (int bits = widest; bits >= 128; bits /= 2) {
    const DirectKernels* kernels = direct_kernels(bits);
    if (!kernels) continue;
    const std::size_t quota = bits == widest ? 24 : bits == widest / 2 ? 6 : 2;
    // For whole vectors, or for long runs where planes meet; of so few channels that all copies stay in
    // the first cache.
    constexpr std::int64_t kShortRow = 512;
    const std::int64_t row_bytes = q * size_of(problem.dtype.y);
    const bool is_short = row_bytes <= kShortRow && lines_meet(p * row_bytes);
    const bool copies_pay =
        (q % kernels->lanes != 0 || is_short) && problem.c / problem.groups <= kFewChannels;
    const auto add = [&](const DirectConfig& config) {
      const bool smallest = config.rows == 1 && (config.cols == 64 || q <= 64);
      const DirectExtents extents(problem, config, kernels->lanes);
      if (!extents.memory.fits() || (!smallest && touched_bytes(extents) > 2 * l2_bytes_of(info))) return;
      if (config.stream != 0 && !extents.straight) return;
      of_tile.push_back({estimate(problem, info, config, extents, kernels->lanes), config});
    };
    for (const TileShape& tile : direct_tiles(*kernels, problem)) {
      // A tile far wider than the filters wastes most of itself.
      if (tile.rows > 1 && tile.rows >= 2 * k) continue;
      of_tile.clear();
      // Threads share the filters where there are fewer tiles than threads.
      const std::int64_t share = ceil_div(ceil_div(k, tile.rows), info.units) * tile.rows;
      const auto may_share = [&](const DirectConfig& config) {
        const std::int64_t columns = config.cols == 0 ? 1 : (q - 1) / config.cols + 1;
        return share < std::min(k, kMostTaskFilters) &&
               problem.n * problem.groups * ((p - 1) / config.rows + 1) * columns < info.units;
      };
      for (const int rows : row_choices)
        for (const int cols : col_choices)
          for (const int flat : {1, 0})
            for (const int stream : {0, 1})
              for (const int staged : {1, 0, 2}) {
                DirectConfig config{bits, tile.rows, tile.vectors, rows, cols, 0, flat, stream, staged};
                if (flat == 0 && problem.layout != Layout::nchw) continue;
                if (staged == 0 && !may_stay(problem, config, kernels->lanes)) continue;
                if (staged == 2 && (!copies_pay || !may_shift(problem, config))) continue;
                add(config);
                if (!may_share(config)) continue;
                config.filters = static_cast<int>(share);
                add(config);
              }
      // Filters in several tasks matter least: they are varied around the best.
      sort_ranked(of_tile);
      std::vector<Ranked<DirectConfig>> best = of_tile;
      keep_first(best, kVaried);
      for (const Ranked<DirectConfig>& whole : best)
        for (const int filters : {tile.rows, 4 * tile.rows}) {
          DirectConfig config = whole.config;
          if (filters >= k || config.filters != 0 || (filters == share && may_share(config))) continue;
          config.filters = filters;
          add(config);
        }
      sort_ranked(of_tile);
      // Stores cost differently on each processor.
      mix_kinds(of_tile, quota, quota / 2, [](const DirectConfig& config) { return config.stream; });
      keep_first(of_tile, quota);
      all.insert(all.end(), of_tile.begin(), of_tile.end());
    }
  }
  sort_ranked(all);
  // A search climbs from the first dozen.
  mix_kinds(all, 12, 2, [](const DirectConfig& c) {
    return std::tuple(c.vector_bits, c.channels, c.vectors, c.cols, c.flat, c.stream, c.staged);
  });
  return configs_of(all);
}

}  // namespace convtune::cpu
