// See winograd_filters_geometry.h.
#include "cpu/algorithms/winograd_filters/winograd_filters_geometry.h"

#include <algorithm>

#include "cpu/tile/winograd/winograd_strip.h"

namespace convtune::cpu {
namespace {

constexpr std::int64_t kWidestVector = 16;  // floats

// Output channels of a register tile: its vectors have nearly equal widths.
std::int64_t register_filters(const ConvProblem& problem, const WinogradFiltersConfig& config, int lanes) {
  const std::int64_t vectors = ceil_div(problem.k / problem.groups, lanes);
  return ceil_div(vectors, ceil_div(vectors, config.vectors)) * lanes;
}

}  // namespace

WinogradFiltersGeometry::WinogradFiltersGeometry(const ConvProblem& problem,
                                                 const WinogradFiltersConfig& config, int lanes)
    : WinogradLayout(problem, 2, register_filters(problem, config, lanes), config.tiles, config.filters),
      axis_inputs(std::ssize(rows_axis.products)),
      blocks(ceil_div(tiles, config.block)) {
  // Half a vector, or whole ones: a strip of tiles is stored by few instructions.
  pitch = ceil_div(config.block, kWidestVector / 2) * (kWidestVector / 2);
  // An odd number of lines keeps the products of a channel from meeting in the same sets of the first cache.
  panels.push_back(0);
  for (const std::int64_t channels : depth)
    panels.push_back(panels.back() +
                     (ceil_div(product_of(channels, pitch), kWidestVector) | 1) * kWidestVector);
  for (const WinogradPartProduct& down : rows_axis.products)
    for (const WinogradPartProduct& along : cols_axis.products) {
      const std::int64_t product = down.product * inputs + along.product;
      places.push_back(panels[static_cast<std::size_t>(product)] / pitch + part_channel(down, along));
    }

  block_step = panels.back();
  product_step = product_of(blocks * config.block, block_filters);
  transformed = memory.take("transformed input", product_of(blocks, block_step));
  multiplied = memory.take("products", product_of(products, product_step));
  sums = memory.take("sums", 4 * kRunTiles * block_filters);
  copied = memory.take("copied input", winograd_strip_floats(problem, lanes));

  issued_multiply_adds = static_cast<double>(issued_tiles(config.block)) *
                         static_cast<double>(first_channel.back()) * static_cast<double>(problem.groups) *
                         static_cast<double>(round_up(group_filters, lanes));
}

}  // namespace convtune::cpu
