// See wgrad_candidates.h.
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "contract/abilities.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.h"
#include "cpu/launch/ranked.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/memory_plan.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kMostPartialBytes = std::int64_t{64} << 20;  // the partial sums of all splits

}  // namespace

WgradGeometry wgrad_geometry(const ConvProblem& problem, const WgradConfig& config) {
  const WgradKernels* const kernels = wgrad_kernels(config.vector_bits);
  return {problem, config, kernels ? kernels->lanes : config.vector_bits / 32, kernels ? kernels->rows : 4};
}

Support wgrad_supports(const ConvProblem& problem, const DeviceInfo&) {
  const Abilities abilities{.types = {DType::f32, DType::f16, DType::bf16},
                            .mixed_types = true,
                            .depth = true,
                            .directions = {Direction::backward_weights}};
  return within(abilities, problem);
}

Support wgrad_accepts(const ConvProblem& problem, const DeviceInfo&, const WgradConfig& config) {
  if (wgrad_kernels(config.vector_bits) == nullptr)
    return Support::no("it has no code for vectors of " + std::to_string(config.vector_bits) + " bits");
  const int most = is_depthwise(problem) ? kMaxEachVectors : kMaxWgradVectors;
  if (config.vectors > most)
    return Support::no("its register tiles have at most " + std::to_string(most) + " vectors");
  if (is_depthwise(problem) && config.words != 0)
    return Support::no("channels of a depthwise layer fill vectors: words is 0");
  if (config.splits > 1 &&
      product_of(config.splits, problem.weight_elements(), std::int64_t{sizeof(float)}) > kMostPartialBytes)
    return Support::no("its partial sums would take more than 64 MiB");
  return Support::yes();
}

double wgrad_cycles(const ConvProblem& problem, const DeviceInfo& info, const WgradConfig& config) {
  const WgradGeometry g = wgrad_geometry(problem, config);
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const double lanes = config.vector_bits / 32.0, chunks = number(g.chunks), groups = number(g.groups);
  const double all_tasks = groups * number(g.filter_tasks), pixels = chunks * number(g.dy_pixels);
  // Two multiply-adds a cycle; depthwise, two loads are for each of them.
  const double products = pixels * number(g.tiles) * number(g.tile) * all_tasks / lanes;
  const double multiply = products * (g.depthwise ? 1.0 : 0.55);
  // Each tile and chunk is a call, and has sums that are read and written.
  const double calls = chunks * number(g.tiles) * all_tasks * (25 + 2 * number(g.tile) / lanes);
  const double panels = chunks * all_tasks *
                        (number(g.x_pixels) * number(g.x_blocks) * (4 + 1.5 * number(g.x_block) / lanes) +
                         number(g.dy_pixels) * number(g.dy_blocks) * (4 + 1.5 * number(g.dy_block) / lanes));
  const double partial = number(problem.weight_elements()) * (1 + number(g.splits));
  const double threads = info.units,
               rounds = std::ceil(number(g.tasks) / threads) * threads / number(g.tasks);
  return (multiply + calls + panels) * rounds + partial;
}

std::vector<WgradConfig> wgrad_candidates(const ConvProblem& problem, const DeviceInfo& info) {
  std::vector<WgradConfig> configs;
  const bool depthwise = is_depthwise(problem);
  const std::int64_t q = std::max<std::int64_t>(problem.q(), 1), p = std::max<std::int64_t>(problem.p(), 1);
  const auto add = [&](const WgradConfig& config) {
    if (wgrad_accepts(problem, info, config) && wgrad_geometry(problem, config).memory.fits())
      configs.push_back(config);
  };
  const std::int64_t group_filters = depthwise ? problem.k : problem.k / problem.groups;
  std::set<int> rows_of_chunk;
  for (const std::int64_t pixels : {64, 192, 512})
    rows_of_chunk.insert(static_cast<int>(std::clamp<std::int64_t>(ceil_div(pixels, q), 1, p)));
  for (int bits = widest_vector_bits(info); bits >= 128; bits /= 2)
    for (int vectors = depthwise ? kMaxEachVectors : kMaxWgradVectors; vectors >= 1; --vectors)
      for (int words = 0; words <= (depthwise ? 0 : 1); ++words)
        for (const int rows : rows_of_chunk)
          for (const int filters : {0, 32, 64, 128})
            for (const int splits : {1, 2, 4, 8, 16, 32})
              if (splits <= 8 * info.units && filters < group_filters)
                add({.vector_bits = bits,
                     .vectors = vectors,
                     .words = words,
                     .rows = rows,
                     .filters = filters,
                     .splits = splits});
  if (configs.empty()) configs.push_back({.vector_bits = widest_vector_bits(info), .filters = 1});
  std::vector<Ranked<WgradConfig>> estimated;
  for (const WgradConfig& config : configs)
    estimated.push_back({wgrad_cycles(problem, info, config), config});
  sort_ranked(estimated);
  return configs_of(estimated);
}

}  // namespace convtune::cpu
