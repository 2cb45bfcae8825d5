// See amx_candidates.h.
#include "cpu/algorithms/amx/amx_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "contract/abilities.h"
#include "cpu/algorithms/amx/amx_tiles.h"
#include "cpu/base/caches.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/tensor_kernels.h"
#include "cpu/tile/weave.h"
#include "problem/activation.h"

namespace convtune::cpu {
namespace {

// More fill the processor's tiles by themselves, and oneDNN's kernels multiply those as fast.
constexpr std::int64_t kMostAmxChannels = 15;

double number(std::int64_t count) {
  return static_cast<double>(count);
}

// Bytes of the second cache that a tile goes through: its window and what is gathered of it, a chunk more at
// each position, which tiles load, and the sums of all of its positions.
std::int64_t touched_bytes(const ConvProblem& a, const AmxConfig& config, const AmxExtents& g) {
  const std::int64_t loaded = g.group_channels + kAmxElements, filter_cols = a.s * a.dilation_w;
  const std::int64_t window = product_of(2 * loaded, g.tile_rows * a.stride_h + a.r * a.dilation_h,
                                         (g.tile_cols + 1) * a.stride_w + filter_cols);
  const std::int64_t gathered =
      config.gathered != 0 ? 4 * (product_of(g.call, product_of(loaded, a.r, a.s) + 64) + 4096) : 0;
  const std::int64_t sums = product_of(4 * kAmxFilters * config.filter_tiles,
                                       product_of(g.tile_rows, g.tile_cols + filter_cols) + 64);
  return window + gathered + sums;
}

double estimate(const ConvProblem& a, const DeviceInfo& info, const AmxConfig& config, const AmxExtents& g) {
  const CpuTarget target(info);
  const double of_l1 = cpu_costs().amx_of_l1 * target.l1_bytes;
  const double m = config.pixel_tiles, n = number(g.filter_units) / number(g.filter_blocks);
  const double pixels = number(g.tile_rows * g.tile_cols);
  const double positions = g.panel > 0 ? pixels : number((g.tile_rows - 1) * g.pitch + g.tile_cols);
  const double tiles = std::max(positions / kAmxPixels, 1.0), calls = std::max(tiles / m, 1.0);
  const double count = tiles / calls;
  const double all_tiles = number(g.tasks / g.filter_tasks),
               all_calls = all_tiles * number(g.filter_blocks) * calls;
  CpuWork work;

  // Products of tiles beside loads of tiles. What one tap has brought into the first cache the others find
  // there.
  const double chunks = number(g.run_count * (g.chunks + (g.tail > 0 ? 1 : 0)));
  const bool stays = g.panel > 0 || 2 * number(g.window_elements) < of_l1;
  const double far = stays ? 0 : count / number(a.r * a.s);
  const bool lines = g.step() % kAmxElements == 0;  // a position's elements begin at lines
  const CpuTerm of_x =
      lines
          ? CpuTerm{&CpuCosts::amx_load, count - far}
          : CpuTerm{g.step() < kAmxElements ? &CpuCosts::amx_load_shared : &CpuCosts::amx_load_across, count};
  const CpuTerm of_far_x{&CpuCosts::amx_load_l2, lines ? far : 0};
  const bool near = number(g.words) * n * kAmxFilters * 4 < of_l1;
  const CpuTerm of_weights{near ? &CpuCosts::amx_load : &CpuCosts::amx_load_l2,
                           (1 + (count - 1) * (n - 1) / n) * n};
  work.add_slowest(all_calls * chunks, {CpuTerm{&CpuCosts::amx_product, count * n}},
                   {of_x, of_far_x, of_weights});
  // Sums are stored, loaded and finished; channels first, they are transposed too. Lines of an output that
  // does not stay in the caches are better not read into them.
  const double vectors = all_calls * count * n * kAmxPixels;
  constexpr double CpuCosts::*kStores[2][3] = {
      {&CpuCosts::amx_store, &CpuCosts::amx_store_past, &CpuCosts::amx_store_ahead},
      {&CpuCosts::amx_far_store, &CpuCosts::amx_far_store_past, &CpuCosts::amx_far_store_ahead}};
  const bool nhwc = a.layout == Layout::nhwc;
  work.add(nhwc ? &CpuCosts::amx_pixels : &CpuCosts::amx_planes, vectors);
  work.add(kStores[caches_keep(a, info) ? 0 : 1][config.stream], vectors);
  // Lines of planes that are multiples of a page apart share a set of the first cache.
  constexpr std::int64_t kPageElements = 2048;
  if (!nhwc && config.stream != 1 && a.p() * a.q() % kPageElements == 0)
    work.add(&CpuCosts::amx_shared_set, vectors);
  // Channels last, a tile of filters without a second one is half a line.
  if (nhwc && g.filter_units / g.filter_blocks % 2 != 0)
    work.add(&CpuCosts::amx_half_line, all_calls * count * kAmxPixels);
  if (nhwc)
    work.add(&CpuCosts::amx_row_of_pixels, all_calls * (1 + count * kAmxPixels / number(g.pitch)));
  else
    work.add(&CpuCosts::amx_row_of_planes, all_calls);
  work.add(&CpuCosts::amx_call, all_calls);

  // Staging: threads that share a tile each stage it.
  const double shared = std::max(1.0, number(info.units * g.filter_tasks) / number(g.tasks + 1));
  const double rows = number((g.tile_rows + g.rows_extent.halo) * g.rows_extent.phases);
  const bool copied = nhwc && g.col_step == 1 && g.groups == 1;
  const bool woven = !nhwc && g.col_step == 1 && g.channels <= kFewPlanes;
  work.add(&CpuCosts::amx_window_row, all_tiles * shared * rows);
  work.add(copied  ? &CpuCosts::amx_copied
           : woven ? &CpuCosts::amx_woven
           : nhwc  ? &CpuCosts::amx_read
                   : &CpuCosts::amx_transposed,
           all_tiles * shared * rows * number(g.row));
  if (g.panel > 0) {
    work.add(&CpuCosts::amx_gathered_run, all_tiles * shared * pixels * number(g.window_runs));
    work.add(&CpuCosts::amx_gathered_chunk, all_tiles * shared * pixels * number(g.chunks));
  }
  work.share({g.groups * g.batch, g.output_rows, g.tile_rows, g.output_cols, g.tile_cols, g.filter_blocks,
              g.task_filter_blocks});
  return estimate_time(target, work);
}

}  // namespace

double amx_cycles(const ConvProblem& problem, const DeviceInfo& info, const AmxConfig& config) {
  return estimate(problem, info, config, AmxExtents(problem, config));
}

Support amx_takes(const ConvProblem& problem, const DeviceInfo&) {
  const Abilities abilities{.types = {DType::f32, DType::f16, DType::bf16},
                            .mixed_types = true,
                            .activations = all_activations(),
                            .residual = true,
                            .eager_rounding = true};
  if (Support support = within(abilities, problem); !support) return support;
  if (problem.dtype.x != DType::bf16 || problem.dtype.w != DType::bf16)
    return Support::no("it multiplies bf16 tensors x and w");
  if (problem.c / problem.groups > kMostAmxChannels)
    return Support::no(fmt::format(
        "it is for {} input channels of a group or fewer: with more, oneDNN was faster", kMostAmxChannels));
  return Support::yes();
}

Support amx_accepts(const ConvProblem& problem, const DeviceInfo&, const AmxConfig& config) {
  if (config.pixel_tiles * config.filter_tiles > kAmxSums)
    return Support::no(
        fmt::format("there is no register tile of {}x{} tiles", config.pixel_tiles, config.filter_tiles));
  if (config.stream != 0 && !may_stream(problem) && !may_stream_planes(problem))
    return Support::no(
        "stream is for outputs of whole lines, of bf16 rounded once: NHWC, there of f32 too, or NCHW "
        "without a "
        "residual");
  return Support::yes();
}

std::vector<AmxConfig> amx_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  const std::int64_t p = problem.p(), q = problem.q(), k = problem.k / problem.groups;
  std::set<int> row_choices = doubled(1, p, 64), col_choices = doubled(64, q, 1024);
  if (p <= 256) row_choices.insert(static_cast<int>(p)), row_choices.insert(static_cast<int>((p + 1) / 2));
  if (q <= 1 << 20) col_choices.insert(0);

  const bool pixels = may_stream(problem), planes = may_stream_planes(problem);
  const int ways = problem.s > 1 ? 2 : 1;  // a filter of one column has nothing to gather
  std::vector<Ranked<AmxConfig>> all;
  for (int m = 1; m <= kAmxSums; ++m)
    for (int n = 1; m * n <= kAmxSums; ++n) {
      // Wider than the filters: as good as the next narrower one.
      if (n > 1 && (n - 1) * kAmxFilters >= k) continue;
      std::vector<Ranked<AmxConfig>> of_tile;
      for (const int rows : row_choices)
        for (const int cols : col_choices)
          for (const int filters : {0, 1, 2, 4, 8})
            for (int gathered = 0; gathered < ways; ++gathered) {
              if (filters * n * kAmxFilters >= k && filters != 0) continue;
              AmxConfig config{m, n, rows, cols, filters * n * kAmxFilters, gathered};
              const bool smallest = rows == 1 && cols == *col_choices.rbegin();
              const AmxExtents extents(problem, config);
              // Filters are shared out where there are few tiles.
              if (filters != 0 && extents.tiles() >= 8 * info.units) continue;
              if (!extents.memory.fits() ||
                  (!smallest && touched_bytes(problem, config, extents) > 2 * l2_bytes_of(info)))
                continue;
              for (config.stream = 0; config.stream <= ((pixels && n % 2 == 0) || planes ? 2 : 0);
                   ++config.stream)
                of_tile.push_back({estimate(problem, info, config, extents), config});
            }
      constexpr int kOfAKind = 6;
      sort_ranked(of_tile);
      keep_first(of_tile, mix_kinds(of_tile, of_tile.size(), kOfAKind,
                                    [](const AmxConfig& c) { return std::pair(c.gathered, c.stream); }));
      all.insert(all.end(), of_tile.begin(), of_tile.end());
    }
  sort_ranked(all);
  return configs_of(all);
}

}  // namespace convtune::cpu
