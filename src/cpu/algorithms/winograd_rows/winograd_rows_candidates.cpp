// See winograd_rows_candidates.h; which precision allows it: docs/decisions/0076.
#include "cpu/algorithms/winograd_rows/winograd_rows_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "contract/abilities.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_kernels.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/model/store_work.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/line_blocks.h"
#include "cpu/tile/winograd/winograd_roundings.h"
#include "problem/activation.h"

namespace convtune::cpu {
namespace {

// Output channels of a group that pay for the transform of the input; input channels above which both axes
// save more; taps and strides along an axis.
constexpr std::int64_t kFewestRowsFilters = 16, kMostChannels = 32, kMostRowsTaps = 32;
constexpr double kLeastSavedByRows = 1.3;  // times fewer products
constexpr std::size_t kMostRowsCandidates = 32;

// Roundings that are not a sum's own: of an input, of a weight, two of an output, and the bias.
constexpr double kOtherRoundings = 5;

Support pays(const ConvProblem& a) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const WinogradAxis rows(a.r, a.stride_h, 2);
  const double saved = 2 * number(a.r) / number(std::ssize(rows.products));
  if (saved < kLeastSavedByRows)
    return Support::no(
        fmt::format("it would make {:.2f} times fewer products, and {} pay", saved, kLeastSavedByRows));
  const double channels = number(a.c / a.groups), taps = number(a.r * a.s), along = number(a.s);
  const WinogradRoundings down = winograd_roundings_of(rows);
  const double squares =
      (down.of_sums * along * along * channels + kOtherRoundings * down.of_products * along) / taps;
  if (std::sqrt(squares) > kMostOfLimit * std::sqrt(channels * taps + 1))
    return Support::no("its sums are too short for their errors to average out as the precision expects");
  return Support::yes();
}

double estimate(const ConvProblem& problem, const DeviceInfo& info, const WinogradRowsConfig& config,
                const WinogradRowsGeometry& g) {
  const int lanes = direct_kernels(config.vector_bits)->lanes;
  const CpuTarget target(info);
  const CpuCosts& costs = cpu_costs();
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const std::int64_t row_vectors = (g.output_cols - 1) / lanes + 1;
  const LineBlocks row_blocks(row_vectors, config.vectors, g.line_unit);
  const double vectors = number(row_vectors), blocks = number(row_blocks.count);
  const double width = vectors / blocks, sums = config.channels * width;
  const double loads = config.channels + 2 * width;
  const double pairs = number(problem.n * problem.groups * ((g.output_rows + 1) / 2));
  const double calls = pairs * number(g.filter_blocks) * blocks;
  const double steps = costs.rows_tap * calls * number(std::ssize(g.taps));
  CpuWork work;
  work.add_steps(steps, sums, loads);
  work.add(&CpuCosts::load, steps * loads);
  work.add(&CpuCosts::rows_sum, calls * sums);
  work.add(&CpuCosts::rows_call, calls);

  // Stores, as direct counts them.
  const double rows = 2 * pairs * number(g.group_filters), element = size_of(problem.dtype.y);
  const double task_bytes =
      element * number(2 * g.pairs * g.output_cols) * number(g.task_filter_blocks * config.channels);
  const bool past_caches = config.stream != 0;
  add_stores(work, problem, info, past_caches, task_bytes, rows * vectors);
  add_meeting_stores(work, problem, info, config.stream, rows * vectors);
  if (past_caches && g.output_cols % 16 != 0) work.add(&CpuCosts::rows_cut_row, rows);
  add_cut_lines(work, problem, row_blocks, lanes * size_of(problem.dtype.y), past_caches, rows);

  // Rows split, and their transform; threads that share rows each make them.
  const double windows = number(problem.n * problem.groups * g.row_tasks);
  const double shared = std::max(1.0, number(target.threads) * number(g.filter_tasks) / number(g.tasks + 1));
  const double planes = shared * windows * number(g.group_channels), row = number(g.row_floats) / lanes;
  work.add(&CpuCosts::rows_input_row, planes * number(g.window_rows));
  work.add(&CpuCosts::rows_input_vector, planes * number(g.window_rows) * row);
  const double product_rows = planes * number(g.pairs * std::ssize(g.axis.products));
  work.add(&CpuCosts::rows_product_row, product_rows);
  work.add(&CpuCosts::rows_product_vector, product_rows * row);
  // V that does not stay in the second cache beside the weights.
  const double kept = 4 * number(g.memory.floats() - g.transformed + g.filter_blocks * g.packed_block);
  if (kept > costs.rows_v_of_l2 * target.l2_bytes)
    work.add(&CpuCosts::rows_v_byte, windows * number(g.filter_tasks) * kept);

  work.share({problem.n * problem.groups, (g.output_rows + 1) / 2, g.pairs, 1, 1, g.filter_blocks,
              g.task_filter_blocks});
  return estimate_time(target, work);
}

}  // namespace

double winograd_rows_cycles(const ConvProblem& problem, const DeviceInfo& info,
                            const WinogradRowsConfig& config) {
  return estimate(problem, info, config, WinogradRowsGeometry(problem, config, config.vector_bits / 32));
}

Support winograd_rows_supports(const ConvProblem& problem, const DeviceInfo&) {
  const Abilities abilities{.activations = all_activations(), .residual = true};
  if (Support support = within(abilities, problem); !support) return support;
  const ConvProblem& a = problem;
  if (a.layout != Layout::nchw) return Support::no("it is for NCHW");
  if (a.dilation_h != 1 || a.dilation_w != 1) return Support::no("it is for filters without dilation");
  if (a.k / a.groups < kFewestRowsFilters)
    return Support::no(fmt::format("it is for {} output channels of a group or more", kFewestRowsFilters));
  if (a.c / a.groups > kMostChannels)
    return Support::no(fmt::format("it is for {} input channels of a group or fewer", kMostChannels));
  if (std::max({a.r, a.s, a.stride_h, a.stride_w}) > kMostRowsTaps)
    return Support::no(fmt::format("it is for filters and strides of {} or less", kMostRowsTaps));
  return pays(a);
}

WinogradRowsConfig winograd_rows_smallest(const ConvProblem&, const DeviceInfo& info) {
  return {.vector_bits = widest_vector_bits(info), .channels = 12, .vectors = 6};
}

Support winograd_rows_accepts(const ConvProblem& problem, const DeviceInfo&,
                              const WinogradRowsConfig& config) {
  if (!find_winograd_rows_tile(config.vector_bits, config.channels, config.vectors))
    return Support::no(fmt::format("there is no {}x{} register tile", config.channels, config.vectors));
  if (config.rows < 1 || config.filters < 0 || config.stream < 0 || config.stream > 2)
    return Support::no("rows must be at least 1, filters at least 0, stream 0, 1 or 2");
  const int lanes = direct_kernels(config.vector_bits)->lanes;
  if (config.stream == 2 && !WinogradRowsGeometry(problem, config, lanes).may_stagger)
    return Support::no(
        "stream=2 needs planes a multiple of 2 KiB apart, rows and register tiles of whole lines of 64 "
        "bytes");
  return Support::yes();
}

std::vector<WinogradRowsConfig> winograd_rows_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  constexpr int kMostRows = 32;
  const std::int64_t k = problem.k / problem.groups, pairs = (problem.p() + 1) / 2;
  const int bits = widest_vector_bits(info);
  std::vector<Ranked<WinogradRowsConfig>> all;
  for (const WinogradRowsTile& tile : winograd_rows_kernels(bits)->tiles)
    for (int rows = 1; rows <= kMostRows && (rows == 1 || rows < 2 * pairs); rows *= 2)
      for (const int parts : filter_parts(k))
        for (const int stream : {0, 1, 2}) {
          WinogradRowsConfig config{bits, tile.rows, tile.vectors, rows, 0, stream};
          if (parts > 1) config.filters = static_cast<int>((k - 1) / parts + 1);
          if (!winograd_rows_accepts(problem, info, config)) continue;
          const WinogradRowsGeometry geometry(problem, config, bits / 32);
          if (geometry.memory.fits()) all.push_back({estimate(problem, info, config, geometry), config});
        }
  sort_ranked(all);
  // Stores cost differently on each processor.
  mix_kinds(all, kMostRowsCandidates, kMostRowsCandidates / 2,
            [](const WinogradRowsConfig& config) { return config.stream; });
  keep_first(all, kMostRowsCandidates);
  sort_ranked(all);
  return configs_of(all);
}

}  // namespace convtune::cpu
