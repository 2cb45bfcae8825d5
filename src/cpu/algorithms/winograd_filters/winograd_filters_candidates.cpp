// See winograd_filters_candidates.h; which precision allows it: docs/decisions/0066.
#include "cpu/algorithms/winograd_filters/winograd_filters_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"
#include "cpu/launch/ranked.h"
#include "cpu/model/cpu_work.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/winograd/winograd_precision.h"
#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {
namespace {

constexpr std::size_t kMostFiltersCandidates = 32;

double estimate(const ConvProblem& problem, const DeviceInfo& info, const WinogradFiltersConfig& config,
                const WinogradFiltersGeometry& g) {
  const int lanes = direct_kernels(config.vector_bits)->lanes;
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
           transforms * strips * number(g.group_channels * g.axis_inputs * g.axis_inputs));
  // Weights from the third cache, or from memory; V that does not stay in the second cache is read again for
  // each register tile of filters.
  const double weights = 4 * channels * filter_blocks * number(g.block_filters);
  if (weights * number(problem.groups) > costs.weights_of_l3 * target.l3_bytes)
    work.add(&CpuCosts::filters_weight_byte_far, weights);
  else if (weights > costs.filters_weights_of_l2 * target.l2_bytes)
    work.add(&CpuCosts::filters_weight_byte, weights);
  if (4 * number(g.copied) > target.l2_bytes)
    work.add(&CpuCosts::filters_v_byte, 4 * number(g.multiplied) * filter_blocks);
  // Sixteen registers do not hold what a strip's transform has: on a Zen 3 all of it takes so much longer
  // beside what winograd is estimated to take.
  if (config.vector_bits < 512) work.repeat(costs.filters_narrow);
  work.repeat(number(problem.groups * g.all_tiles) / number(g.tiles));
  work.share({problem.groups, g.all_tiles, g.tiles, 1, 1, g.filter_blocks, g.task_filter_blocks});
  return estimate_time(target, work);
}

}  // namespace

double winograd_filters_cycles(const ConvProblem& problem, const DeviceInfo& info,
                               const WinogradFiltersConfig& config) {
  return estimate(problem, info, config, WinogradFiltersGeometry(problem, config, config.vector_bits / 32));
}

Support winograd_filters_supports(const ConvProblem& problem, const DeviceInfo& info) {
  const ConvProblem& a = problem;
  if (a.layout != Layout::nchw) return Support::no("it is for NCHW");
  if (a.r != kWinogradTaps || a.s != kWinogradTaps || a.stride_h != a.stride_w || a.stride_h > 2 ||
      a.dilation_h != 1 || a.dilation_w != 1)
    return Support::no("it is for 3x3 filters with strides of 1 or of 2, without dilation");
  return winograd_within_precision(problem, info);
}

WinogradFiltersConfig winograd_filters_smallest(const ConvProblem& problem, const DeviceInfo& info) {
  const int bits = widest_vector_bits(info);
  WinogradFiltersConfig smallest;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& tile : winograd_filters_kernels(bits)->tiles) {
    const WinogradFiltersConfig config{
        .vector_bits = bits, .block = tile.rows, .vectors = tile.vectors, .tiles = tile.rows};
    const std::int64_t bytes = WinogradFiltersGeometry(problem, config, bits / 32).memory.bytes();
    if (bytes < least) smallest = config, least = bytes;
  }
  return smallest;
}

Support winograd_filters_accepts(const ConvProblem&, const DeviceInfo&, const WinogradFiltersConfig& config) {
  if (!winograd_filters_multiply(config.vector_bits, config.block, config.vectors))
    return Support::no(fmt::format("there is no {}x{} register tile", config.block, config.vectors));
  if (config.tiles < 1 || config.filters < 0)
    return Support::no("tiles must be at least 1, filters at least 0");
  return Support::yes();
}

std::vector<WinogradFiltersConfig> winograd_filters_candidates(const ConvProblem& problem,
                                                               const DeviceInfo& info) {
  constexpr int kBlocks[] = {1, 2, 3, 4, 6, 9, 13, 19, 28};
  constexpr int kFewestSums = 8;  // fewer wait for each other
  const int bits = widest_vector_bits(info), lanes = direct_kernels(bits)->lanes;
  std::vector<Ranked<WinogradFiltersConfig>> all;
  const auto add = [&](WinogradFiltersConfig config) {
    const WinogradFiltersGeometry g(problem, config, lanes);
    if (!g.memory.fits()) return;
    // More than all tiles at once is the same again.
    if (config.tiles >= g.all_tiles + config.block && config.tiles > config.block) return;
    for (const int parts : filter_parts(g.group_filters)) {
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
  sort_ranked(all);
  keep_first(all, kMostFiltersCandidates);
  return configs_of(all);
}

}  // namespace convtune::cpu
