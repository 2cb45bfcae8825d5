// Outputs shared out among tasks: tiles of the output plane, and blocks of output channels. Plain arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/memory_plan.h"

namespace convtune::cpu {

// One tile of the output: its first pixel, and what the output leaves of it.
struct OutputTile {
  std::int64_t index, group, image, row, col, rows, cols;
  std::int64_t pixels() const { return rows * cols; }
};

// Every plane of the output in tiles of at most `rows` by `cols` pixels; cols = 0: of the whole width.
struct OutputTiles {
  OutputTiles(const ConvProblem& problem, std::int64_t rows, std::int64_t cols)
      : groups(problem.groups),
        batch(problem.n),
        output_rows(problem.p()),
        output_cols(problem.q()),
        tile_rows(std::min(rows, output_rows)),
        tile_cols(cols == 0 ? output_cols : std::min(cols, output_cols)),
        row_tiles(ceil_div(output_rows, tile_rows)),
        col_tiles(ceil_div(output_cols, tile_cols)) {}

  std::int64_t groups, batch, output_rows, output_cols;
  std::int64_t tile_rows, tile_cols, row_tiles, col_tiles;

  std::int64_t tiles() const { return groups * batch * row_tiles * col_tiles; }
  OutputTile tile(std::int64_t index) const {
    OutputTile tile{};
    tile.index = index;
    tile.col = index % col_tiles * tile_cols;
    index /= col_tiles;
    tile.row = index % row_tiles * tile_rows;
    index /= row_tiles;
    tile.image = index % batch;
    tile.group = index / batch;
    tile.rows = std::min(tile_rows, output_rows - tile.row);
    tile.cols = std::min(tile_cols, output_cols - tile.col);
    return tile;
  }
};

// Output channels that register tiles take together, in units.
struct FilterBlock {
  std::int64_t first, count;
};

// The blocks of a task.
struct FilterRange {
  std::int64_t first, end;
};

// A group's output channels in units, vectors say, and those in blocks of at most `block_units`. A task takes
// the blocks of `task_filters` channels; 0: of all.
struct FilterBlocks {
  FilterBlocks(const ConvProblem& problem, std::int64_t unit, std::int64_t block_units,
               std::int64_t task_filters)
      : group_filters(problem.k / problem.groups),
        filter_units(ceil_div(group_filters, unit)),
        filter_blocks(ceil_div(filter_units, block_units)),
        task_filter_blocks(task_filters == 0 ? filter_blocks
                                             : std::clamp<std::int64_t>(task_filters / (block_units * unit),
                                                                        1, filter_blocks)),
        filter_tasks(ceil_div(filter_blocks, task_filter_blocks)) {}

  std::int64_t group_filters, filter_units, filter_blocks, task_filter_blocks;
  std::int64_t filter_tasks;  // tasks that share a tile

  // Blocks have nearly equal widths: 7 units are 4 + 3, not 4 + 2 + 1.
  FilterBlock block(std::int64_t index) const {
    const std::int64_t first = filter_units * index / filter_blocks;
    return {first, filter_units * (index + 1) / filter_blocks - first};
  }
  FilterRange blocks_of(std::int64_t task) const {
    const std::int64_t first = task % filter_tasks * task_filter_blocks;
    return {first, std::min(first + task_filter_blocks, filter_blocks)};
  }
};

}  // namespace convtune::cpu
