// See winograd_filters_geometry.h.
#include "cpu/algorithms/winograd_filters/winograd_filters_geometry.h"

#include <algorithm>

#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {
namespace {

std::int64_t quotient_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

constexpr std::int64_t kWidestVector = 16;  // floats

}  // namespace

WinogradFiltersGeometry::WinogradFiltersGeometry(const ConvProblem& problem,
                                                 const WinogradFiltersConfig& config, int lanes)
    : group_channels(problem.c / problem.groups),
      group_filters(problem.k / problem.groups),
      axis(problem.r, problem.stride_h, 2),
      inputs(std::ssize(axis.products)) {
  constexpr int kProducts = winograd_inputs(2);
  first_channel.push_back(0);
  for (const std::int64_t down : {0, 1, 2, 3})
    for (const std::int64_t along : {0, 1, 2, 3}) {
      depth.push_back(group_channels * axis.parts_with[down] * axis.parts_with[along]);
      first_channel.push_back(first_channel.back() + depth.back());
    }
  // Half a vector, or whole ones: a strip of tiles is stored by few instructions.
  pitch = quotient_up(config.block, kWidestVector / 2) * (kWidestVector / 2);
  // An odd number of lines keeps the products of a channel from meeting in the same sets of the first cache.
  panels.push_back(0);
  for (const std::int64_t channels : depth)
    panels.push_back(panels.back() + (quotient_up(channels * pitch, kWidestVector) | 1) * kWidestVector);
  for (const WinogradPartProduct& down : axis.products)
    for (const WinogradPartProduct& along : axis.products) {
      const int product = down.product * kProducts + along.product;
      const std::int64_t rank = down.rank * axis.parts_with[along.product] + along.rank;
      places.push_back(panels[static_cast<std::size_t>(product)] / pitch + rank * group_channels);
    }
  image_rows = quotient_up(problem.p(), 2);
  image_cols = quotient_up(problem.q(), 2);
  image_tiles = image_rows * image_cols;
  all_tiles = problem.n * image_tiles;

  tiles = std::clamp<std::int64_t>(config.tiles, 1, std::max<std::int64_t>(all_tiles, 1));
  blocks = quotient_up(tiles, config.block);
  const std::int64_t vectors = quotient_up(group_filters, lanes);
  block_filters = quotient_up(vectors, quotient_up(vectors, config.vectors)) * lanes;
  filter_blocks = quotient_up(group_filters, block_filters);
  task_filter_blocks = config.filters == 0
                           ? filter_blocks
                           : std::clamp<std::int64_t>(config.filters / block_filters, 1, filter_blocks);
  filter_tasks = quotient_up(filter_blocks, task_filter_blocks);
  tile_tasks = quotient_up(all_tiles, tiles);
  tasks = problem.groups * tile_tasks * filter_tasks;

  block_step = panels.back();
  product_step = blocks * config.block * block_filters;
  multiplied = blocks * block_step;
  sums = multiplied + std::ssize(depth) * product_step;
  scratch = sums + 4 * kRunTiles * block_filters;

  packed_bias = problem.groups * filter_blocks * first_channel.back() * block_filters;
  packed_weights = packed_bias + problem.groups * filter_blocks * block_filters;
  packed_floats = packed_weights + problem.weight_elements();

  const std::int64_t rest = all_tiles - (tile_tasks - 1) * tiles;
  const std::int64_t whole =
      tile_tasks == 0 ? 0 : (tile_tasks - 1) * blocks + quotient_up(rest, config.block);
  issued_multiply_adds = static_cast<double>(whole * config.block) *
                         static_cast<double>(first_channel.back() * problem.groups) *
                         static_cast<double>(vectors * lanes);
}

WinogradFiltersTask WinogradFiltersGeometry::task(std::int64_t index) const {
  const std::int64_t of_tiles = index / filter_tasks;
  WinogradFiltersTask task{};
  task.group = of_tiles / tile_tasks;
  task.first_tile = of_tiles % tile_tasks * tiles;
  task.tiles = std::min(tiles, all_tiles - task.first_tile);
  task.first_block = index % filter_tasks * task_filter_blocks;
  task.last_block = std::min(task.first_block + task_filter_blocks, filter_blocks);
  return task;
}

double winograd_filters_scratch_bytes(const ConvProblem& problem, const WinogradFiltersConfig& config) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double most = number(problem.n) * (number(problem.p()) / 2 + 1) * (number(problem.q()) / 2 + 1);
  const double tiles = std::min<double>(config.tiles, most) + 2 * config.block;
  const double products = number(std::ssize(WinogradAxis(problem.r, problem.stride_h, 2).products));
  const double channels = number(problem.c / problem.groups) * products * products;
  const double filters = static_cast<double>(config.vectors) * kWidestVector;
  // A block of one tile takes half a vector in V.
  const double pitches = number(quotient_up(config.block, 8) * 8) / config.block;
  return 4 * (channels * tiles * pitches + filters * (16 * tiles + 4 * kWidestVector));
}

}  // namespace convtune::cpu
