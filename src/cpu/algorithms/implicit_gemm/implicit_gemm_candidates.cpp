// See implicit_gemm_candidates.h.
#include "cpu/algorithms/implicit_gemm/implicit_gemm_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "contract/abilities.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/base/caches.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/model/store_work.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/tensor_kernels.h"
#include "cpu/tile/weave.h"
#include "problem/activation.h"

namespace convtune::cpu {
namespace {

double number(std::int64_t count) {
  return static_cast<double>(count);
}

bool has_tile(const ImplicitGemmKernels& kernels, const ConvProblem& problem,
              const ImplicitGemmConfig& config) {
  return find_kernel(multiply_kernels(kernels, problem, config), config.pixels, config.vectors) != nullptr;
}

bool has_pairs(const ConvProblem& problem) {
  return problem.dtype.x == DType::bf16 && problem.dtype.w == DType::bf16;
}

// True where words lie in x as the kernels read them, and no output reads past the image.
bool may_stay(const ConvProblem& a, const ImplicitGemmConfig& config) {
  const bool padded = a.pad_top != 0 || a.pad_bottom != 0 || a.pad_left != 0 || a.pad_right != 0;
  const bool words =
      config.bf16 != 0 ? config.joined != 0 || a.c / a.groups % 2 == 0 : a.dtype.x == DType::f32;
  const bool planes = config.joined != 0 && config.bf16 == 0;
  return (a.layout == Layout::nhwc || planes) && !padded && words;
}

// True where the columns and channels of a filter's row follow each other in x, where planes are read, or
// where there are so few planes that they are woven.
bool may_join(const ConvProblem& a, const ImplicitGemmConfig& config) {
  const bool few = a.c <= kFewPlanes && (config.bf16 != 0 || a.dtype.x == DType::f32);
  const bool planes = config.staged == 0 && config.bf16 == 0;
  return a.groups == 1 && a.dilation_w == 1 && (a.layout == Layout::nhwc || few || planes);
}

// True where all pixels of an image follow each other in each plane as outputs do, and are read there.
bool may_be_side_by_side(const ConvProblem& problem) {
  const ImplicitGemmConfig all{.rows = static_cast<int>(problem.p()), .staged = 0, .joined = 1};
  return may_stay(problem, all) && may_join(problem, all) && reads_side_by_side(problem, all);
}

// Bytes of the second cache that a tile goes through: its window as f32, padded, and a block's outputs.
std::int64_t touched_bytes(const ImplicitGemmGeometry& g, const ImplicitGemmConfig& config) {
  const std::int64_t padded = g.group_channels + (config.joined != 0 ? 1 : 32 * g.passes);
  const std::int64_t window = config.staged != 0 ? product_of(g.window_rows, g.window_cols, padded) : 0;
  return 4 * (window + product_of(g.tile_rows, g.tile_cols, g.sums_step + 4));
}

double estimate(const ConvProblem& problem, const DeviceInfo& info, const ImplicitGemmConfig& config,
                const ImplicitGemmGeometry& g) {
  const CpuTarget target(info);
  const CpuCosts& costs = cpu_costs();
  const double line_bytes = 64.0, vector_lines = g.lanes / 16.0;
  const double tile_pixels = number(g.tile_rows * g.tile_cols);
  const double calls = std::ceil(tile_pixels / config.pixels);
  const double pixels = tile_pixels / calls;
  const double vectors = number(g.filter_units) / number(g.filter_blocks);
  const double products = pixels * vectors;
  const double tiles = number(g.tasks / g.filter_tasks);
  const double all_calls = tiles * number(g.filter_blocks) * calls;
  CpuWork work;

  // One word of every pixel of a register tile, and the weights that come from farther away than the first
  // cache.
  const double words = all_calls * number(g.taps * g.words);
  work.add_steps(words, products, pixels + vectors);
  work.add(&CpuCosts::gemm_load, words * (pixels + vectors));
  const bool side_by_side = reads_side_by_side(problem, config);
  double pass_weights = number(g.taps * g.pass_words) * vectors * vector_lines * line_bytes;
  // One register tile a block: all weights go by before one is read again.
  if (side_by_side && calls == 1) pass_weights *= number(g.filter_blocks);
  const double window_bytes = 4 * tile_pixels * number(g.words);
  const bool in_l1 = pass_weights < costs.gemm_weights_of_l1 * target.l1_bytes;
  const bool in_l2 = pass_weights + window_bytes / number(g.passes) < target.l2_bytes;
  work.add(in_l1   ? &CpuCosts::gemm_weight_byte
           : in_l2 ? &CpuCosts::gemm_weight_byte_l2
                   : &CpuCosts::gemm_weight_byte_far,
           words * vectors * vector_lines * line_bytes);
  work.add(&CpuCosts::gemm_pass, all_calls * number(g.passes));
  if (!side_by_side) work.add(&CpuCosts::gemm_pass_tap, all_calls * number(g.passes) * number(g.taps));
  work.add(&CpuCosts::gemm_kept_sum, all_calls * products * number(g.passes - 1));
  work.add(problem.layout == Layout::nhwc ? &CpuCosts::gemm_pixels : &CpuCosts::gemm_planes,
           all_calls * products);
  // Lines of an output that does not stay in the caches are read into them first.
  if (!caches_keep(problem, info)) work.add(&CpuCosts::gemm_store_amiss, all_calls * products);

  // Staging: of every task that does not follow one of the same tile on the same thread.
  if (config.staged != 0) {
    const double shared = std::max(1.0, number(info.units * g.filter_tasks) / number(g.tasks + 1));
    double windows = tiles * shared;
    if (problem.layout == Layout::nchw) add_short_pieces(work, problem, g.tile_rows, windows);
    if (4 * number(g.window_floats) > target.l2_bytes) windows *= costs.gemm_far_window;
    const bool vectorized = problem.layout == Layout::nhwc || g.input_col == 1;
    work.add(&CpuCosts::gemm_window_row, windows * number(g.window_rows * g.passes));
    work.add(problem.layout == Layout::nhwc ? &CpuCosts::gemm_copied
             : vectorized                   ? &CpuCosts::gemm_transposed
                                            : &CpuCosts::gemm_gathered,
             windows * number(g.window_floats));
  } else if (problem.layout == Layout::nchw && planes_meet(problem)) {
    work.add(&CpuCosts::gemm_met_line, words);
  }
  work.share({g.groups * g.batch, g.output_rows, g.tile_rows, g.output_cols, g.tile_cols, g.filter_blocks,
              g.task_filter_blocks});
  return estimate_time(target, work);
}

}  // namespace

MultiplyKernels multiply_kernels(const ImplicitGemmKernels& kernels, const ConvProblem& problem,
                                 const ImplicitGemmConfig& config) {
  if (config.bf16 != 0) return kernels.bf16_pairs;
  return reads_side_by_side(problem, config) ? kernels.side_by_side : kernels.f32;
}

double implicit_gemm_cycles(const ConvProblem& problem, const DeviceInfo& info,
                            const ImplicitGemmConfig& config) {
  const int lanes = implicit_gemm_kernels(config.vector_bits)->lanes;
  return estimate(problem, info, config, ImplicitGemmGeometry(problem, config, lanes));
}

Support implicit_gemm_supports(const ConvProblem& problem, const DeviceInfo&) {
  const Abilities abilities{.types = {DType::f32, DType::f16, DType::bf16},
                            .mixed_types = true,
                            .activations = all_activations(),
                            .residual = true,
                            .eager_rounding = true};
  return within(abilities, problem);
}

Support implicit_gemm_accepts(const ConvProblem& problem, const DeviceInfo&,
                              const ImplicitGemmConfig& config) {
  if (config.bf16 != 0 && !has_pairs(problem)) return Support::no("bf16=1 multiplies bf16 tensors x and w");
  if (config.bf16 != 0 && !multiplies_bf16()) return Support::no("bf16=1 needs a processor with avx512_bf16");
  if (!has_tile(*implicit_gemm_kernels(config.vector_bits), problem, config))
    return Support::no(fmt::format(
        "there is no {}x{} register tile of {} bits{}", config.pixels, config.vectors, config.vector_bits,
        reads_side_by_side(problem, config) ? "" : ", where pixels do not lie side by side"));
  if (config.joined != 0 && (!may_join(problem, config) || config.channels != 0))
    return Support::no(
        "joined=1 is for NHWC, a few planes or planes of f32 where they lie, without groups or dilation "
        "along a "
        "row, in one pass: channels=0");
  if (config.staged == 0 && !may_stay(problem, config))
    return Support::no(
        "staged=0 reads x where it lies, without padding: NHWC, of f32 or of pairs of bf16, or NCHW of f32, "
        "joined");
  return Support::yes();
}

std::vector<ImplicitGemmConfig> implicit_gemm_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  const std::int64_t p = problem.p(), q = problem.q(), k = problem.k / problem.groups;
  const std::int64_t c = problem.c / problem.groups;
  std::set<int> row_choices = doubled(1, p, 64), col_choices = doubled(28, q, 128),
                channel_choices = doubled(64, c, 512);
  if (p <= 256) row_choices.insert(static_cast<int>(p)), row_choices.insert(static_cast<int>((p + 1) / 2));
  col_choices.insert(0), channel_choices.insert(0);

  const int widest = widest_vector_bits(info);
  std::vector<Ranked<ImplicitGemmConfig>> all;
  for (int bits = widest; bits >= 128; bits /= 2) {
    const ImplicitGemmKernels* kernels = implicit_gemm_kernels(bits);
    if (!kernels) continue;
    const int lanes = kernels->lanes;
    // Few channels a pixel are joined, whose words they would not fill; many are their own words.
    constexpr std::int64_t kFew = 16, kMany = 64;
    for (int bf16 = 0; bf16 <= 1; ++bf16)
      for (int way = 0; way < kMaxGemmVectors * 2; ++way) {
        const int vectors = 1 + way / 2, joined = way % 2;
        // Wider than the output channels: as good as the next narrower one.
        if (vectors > 1 && (vectors - 1) * lanes >= k) continue;
        ImplicitGemmConfig config{.vector_bits = bits, .bf16 = bf16, .vectors = vectors, .joined = joined};
        const bool joins = may_join(problem, config) && problem.s > 1 && c < kMany;
        // One channel after the other, of filters of one column.
        const bool side_by_side = may_be_side_by_side(problem) && bf16 == 0;
        if (joined != 0 ? !joins && !side_by_side : joins && c < kFew) continue;
        if (bf16 != 0 && (!has_pairs(problem) || !multiplies_bf16())) continue;
        std::vector<Ranked<ImplicitGemmConfig>> of_tile;
        const auto add = [&] {
          if (joined != 0 && !joins && !reads_side_by_side(problem, config)) return;
          config.pixels = kMaxGemmPixels;
          while (config.pixels > 1 && !has_tile(*kernels, problem, config)) --config.pixels;
          if (!has_tile(*kernels, problem, config)) return;
          const bool smallest = config.rows == 1 && (config.cols == 28 || q <= 28);
          const ImplicitGemmGeometry geometry(problem, config, lanes);
          if (!geometry.memory.fits() ||
              (!smallest && touched_bytes(geometry, config) > 2 * l2_bytes_of(info)))
            return;
          of_tile.push_back({estimate(problem, info, config, geometry), config});
        };
        for (const int rows : row_choices)
          for (const int cols : col_choices)
            for (const int channels : channel_choices)
              for (const int filters : {0, 1, 2, 4, 8})
                for (const int staged : {0, 1}) {
                  if (filters * vectors * lanes >= k && filters != 0) continue;
                  if (joined != 0 && channels != 0) continue;
                  if (staged == 0 && !may_stay(problem, config)) continue;
                  config.rows = rows, config.cols = cols, config.channels = channels;
                  config.filters = filters * vectors * lanes, config.staged = staged;
                  add();
                }
        sort_ranked(of_tile);
        keep_first(of_tile, bits == widest ? 24 : bits == widest / 2 ? 4 : 1);
        all.insert(all.end(), of_tile.begin(), of_tile.end());
      }
  }
  sort_ranked(all);
  return configs_of(all);
}

}  // namespace convtune::cpu
