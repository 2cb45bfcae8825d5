// See winograd_layout.h.
#include "cpu/tile/winograd/winograd_layout.h"

#include <algorithm>

#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {

WinogradLayout::WinogradLayout(const ConvProblem& problem, std::int64_t tile, std::int64_t register_filters,
                               std::int64_t task_tiles, std::int64_t task_filters)
    : FilterBlocks(problem, 1, register_filters, task_filters),
      group_channels(problem.c / problem.groups),
      m(tile),
      inputs(winograd_inputs(static_cast<int>(m))),
      products(inputs * inputs),
      rows_axis(problem.r, problem.stride_h, static_cast<int>(m)),
      cols_axis(problem.s, problem.stride_w, static_cast<int>(m)),
      row_phases(std::min(problem.dilation_h, problem.p())),
      col_phases(std::min(problem.dilation_w, problem.q())),
      image_rows(ceil_div(problem.p(), m * problem.dilation_h)),
      image_cols(ceil_div(problem.q(), m * problem.dilation_w)),
      image_tiles(image_rows * image_cols),
      all_tiles(problem.n * row_phases * col_phases * image_tiles),
      block_filters(register_filters),
      tiles(std::clamp<std::int64_t>(task_tiles, 1, std::max<std::int64_t>(all_tiles, 1))),
      tile_tasks(ceil_div(all_tiles, tiles)),
      tasks(problem.groups * tile_tasks * filter_tasks) {
  first_channel.push_back(0);
  for (std::int64_t i = 0; i < products; ++i) {
    const std::int64_t parts = rows_axis.parts_with[i / inputs] * cols_axis.parts_with[i % inputs];
    depth.push_back(product_of(group_channels, parts));
    first_channel.push_back(first_channel.back() + depth.back());
  }
  packed_bias = product_of(problem.groups * filter_blocks, first_channel.back(), block_filters);
  packed_weights = packed_bias + problem.groups * filter_blocks * block_filters;
  packed_floats = packed_weights + problem.weight_elements();
}

void WinogradLayout::pack(const ConvProblem& problem, const float* w, const float* bias,
                          float* packed) const {
  std::fill_n(packed, packed_weights, 0.0F);
  std::copy_n(w, problem.weight_elements(), packed + packed_weights);
  for (std::int64_t k = 0; k < problem.k; ++k) {
    const std::int64_t group = k / group_filters, in_group = k % group_filters;
    const std::int64_t block = in_group / block_filters, in_block = in_group % block_filters;
    for (std::int64_t c = 0; c < group_channels; ++c)
      for (const WinogradPartProduct& row : rows_axis.products)
        for (const WinogradPartProduct& col : cols_axis.products) {
          const WinogradPart &rows = rows_axis.parts[row.part], &cols = cols_axis.parts[col.part];
          const float* const filter = w + (k * group_channels + c) * problem.r * problem.s;
          packed[packed_panel(group, block, row.product * inputs + col.product) +
                 (part_channel(row, col) + c) * block_filters + in_block] =
              transformed_weight({.w = filter + rows.first * problem.s + cols.first,
                                  .m = static_cast<int>(m),
                                  .row_taps = rows.taps,
                                  .col_taps = cols.taps,
                                  .row_step = problem.stride_h * problem.s,
                                  .col_step = problem.stride_w},
                                 row.product, col.product);
        }
    if (bias) packed[packed_bias_of(group, in_group)] = bias[k];
  }
}

WinogradTask WinogradLayout::task(std::int64_t index) const {
  const std::int64_t of_tiles = index / filter_tasks, first_tile = of_tiles % tile_tasks * tiles;
  const FilterRange blocks = blocks_of(index);
  return {of_tiles / tile_tasks, first_tile, std::min(tiles, all_tiles - first_tile), blocks.first,
          blocks.end};
}

std::int64_t WinogradLayout::issued_tiles(std::int64_t unit) const {
  if (tile_tasks == 0) return 0;
  const std::int64_t rest = all_tiles - (tile_tasks - 1) * tiles;
  return (tile_tasks - 1) * round_up(tiles, unit) + round_up(rest, unit);
}

}  // namespace convtune::cpu
