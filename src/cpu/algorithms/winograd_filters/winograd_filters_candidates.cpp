// See winograd_filters_candidates.h; which precision allows it: docs/decisions/0066.
#include "cpu/algorithms/winograd_filters/winograd_filters_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"
#include "cpu/model/estimates.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/winograd/winograd_precision.h"
#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {
namespace {

constexpr std::size_t kMostFiltersCandidates = 32;

struct RankedFilters {
  double estimate;
  WinogradFiltersConfig config;
};

}  // namespace

double winograd_filters_cycles(const ConvProblem& problem, const DeviceInfo& info,
                               const WinogradFiltersConfig& config) {
  const int lanes = direct_kernels(config.vector_bits)->lanes;
  const WinogradFiltersGeometry g(problem, config, lanes);
  const CpuTarget target(info);
  const CpuCosts& costs = cpu_costs();
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  // All filters of as many tiles as are transformed at once: a register tile's multiply-adds or loads,
  // weights that come from the second cache, and what stands around them.
  const double width = number(g.block_filters / lanes), sums = config.block * width;
  const double channels = number(g.first_channel.back()), filter_blocks = number(g.filter_blocks);
  const double calls = filter_blocks * number(g.blocks), products = number(std::ssize(g.depth));
  CpuWork work;
  work.add_steps(calls * channels, sums, config.block + width);
  work.add(&CpuCosts::filters_weight_vector, calls * channels * width);
  work.add(&CpuCosts::filters_sum, calls * products * sums);
  work.add(&CpuCosts::filters_call, calls * products);
  // Outputs: tiles' sums, then squares of pixels and filters.
  const double rows = number(g.tiles) / number(std::min(g.image_cols, g.tiles));
  const double squares = 2 * rows * std::ceil(2 * number(g.image_cols) / lanes);
  work.add(&CpuCosts::filters_output_tile, filter_blocks * width * number(g.tiles));
  work.add(&CpuCosts::filters_output_square, filter_blocks * width * squares);
  // The input, strip by strip, by every thread that has some of these tiles' filters. A strip that ends amid
  // a block of tiles is half a strip more.
  const std::int64_t strip = config.block <= lanes ? lanes / config.block * config.block : lanes;
  const double strips =
      rows * (std::ceil(number(g.image_cols) / number(strip)) + (g.image_cols % config.block == 0 ? 0 : 0.5));
  const double transforms = std::min(number(target.threads), number(g.filter_tasks));
  work.add(&CpuCosts::filters_input_vector,
           transforms * strips * number(g.group_channels * g.inputs * g.inputs));
  // Weights from the third cache, or from memory; V that does not stay in the second cache is read again for
  // each register tile of filters.
  const double weights = 4 * channels * filter_blocks * number(g.block_filters);
  if (weights * number(problem.groups) > costs.weights_of_l3 * target.l3_bytes)
    work.add(&CpuCosts::filters_weight_byte_far, weights);
  else if (weights > costs.filters_weights_of_l2 * target.l2_bytes)
    work.add(&CpuCosts::filters_weight_byte, weights);
  if (4 * number(g.scratch) > target.l2_bytes)
    work.add(&CpuCosts::filters_v_byte, 4 * number(g.multiplied) * filter_blocks);
  // Sixteen registers do not hold what a strip's transform has: on a Zen 3 all of it takes so much longer
  // beside what winograd is estimated to take.
  if (config.vector_bits < 512) work.repeat(costs.filters_narrow);
  work.repeat(number(problem.groups * g.all_tiles) / number(g.tiles));
  work.share({problem.groups, g.all_tiles, g.tiles, 1, 1, g.filter_blocks, g.task_filter_blocks});
  return estimate_time(target, work);
}

Support winograd_filters_supports(const ConvProblem& problem, const DeviceInfo& info) {
  const ConvProblem& a = problem;
  if (a.layout != Layout::nchw) return Support::no("it is for NCHW");
  if (a.r != kWinogradTaps || a.s != kWinogradTaps || a.stride_h != a.stride_w || a.stride_h > 2 ||
      a.dilation_h != 1 || a.dilation_w != 1)
    return Support::no("it is for 3x3 filters with strides of 1 or of 2, without dilation");
  if (Support support = winograd_within_precision(problem, info); !support) return support;
  const int bits = widest_vector_bits(info);
  double least = 2 * kMaxScratchBytes;
  for (const auto& tile : winograd_filters_kernels(bits)->tiles)
    least = std::min(
        least,
        winograd_filters_scratch_bytes(
            a, {.vector_bits = bits, .block = tile.rows, .vectors = tile.vectors, .tiles = tile.rows}));
  if (least > kMaxScratchBytes)
    return Support::no(
        fmt::format("the smallest task takes more than {:.0f} MiB", kMaxScratchBytes / 1048576));
  return Support::yes();
}

Support winograd_filters_accepts(const ConvProblem& problem, const DeviceInfo& info,
                                 const WinogradFiltersConfig& config) {
  if (Support support = winograd_filters_supports(problem, info); !support) return support;
  if (config.vector_bits > widest_vector_bits(info) || !direct_kernels(config.vector_bits))
    return Support::no(fmt::format("vector_bits={} is not supported by this CPU", config.vector_bits));
  if (!winograd_filters_multiply(config.vector_bits, config.block, config.vectors))
    return Support::no(fmt::format("there is no {}x{} register tile", config.block, config.vectors));
  if (config.tiles < 1 || config.filters < 0)
    return Support::no("tiles must be at least 1, filters at least 0");
  if (const double bytes = winograd_filters_scratch_bytes(problem, config); bytes > kMaxScratchBytes)
    return Support::no(fmt::format("its scratch memory would be {:.0f} MiB a thread", bytes / 1048576));
  return Support::yes();
}

std::vector<WinogradFiltersConfig> winograd_filters_candidates(const ConvProblem& problem,
                                                               const DeviceInfo& info) {
  constexpr int kBlocks[] = {1, 2, 3, 4, 6, 9, 13, 19, 28};
  constexpr int kFewestSums = 8;  // fewer wait for each other
  const int bits = widest_vector_bits(info), lanes = direct_kernels(bits)->lanes;
  std::vector<RankedFilters> all;
  const auto add = [&](WinogradFiltersConfig config) {
    const WinogradFiltersGeometry g(problem, config, lanes);
    // More than all tiles at once is the same again.
    if (config.tiles >= g.all_tiles + config.block && config.tiles > config.block) return;
    for (const std::int64_t parts : {1, 2, 4}) {
      if (parts > g.filter_blocks) break;
      if (parts > 1) config.filters = static_cast<int>(((g.filter_blocks - 1) / parts + 1) * g.block_filters);
      all.push_back({winograd_filters_cycles(problem, info, config), config});
    }
  };
  for (const auto& tile : winograd_filters_kernels(bits)->tiles)
    for (const int vectors : {tile.vectors, tile.vectors - 1})
      for (const int blocks : kBlocks) {
        const WinogradFiltersConfig config{
            .vector_bits = bits, .block = tile.rows, .vectors = vectors, .tiles = blocks * tile.rows};
        if (tile.rows * vectors >= kFewestSums && winograd_filters_accepts(problem, info, config))
          add(config);
      }
  std::stable_sort(all.begin(), all.end(),
                   [](const RankedFilters& a, const RankedFilters& b) { return a.estimate < b.estimate; });
  all.resize(std::min(all.size(), kMostFiltersCandidates));
  std::vector<WinogradFiltersConfig> configs;
  for (const RankedFilters& ranked : all) configs.push_back(ranked.config);
  return configs;
}

}  // namespace convtune::cpu
