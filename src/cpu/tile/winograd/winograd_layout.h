// Layouts that Winograd's convolutions of both axes share: tiles of outputs and tasks of them, channels of
// each product, packed weights. Plain arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/output_tiles.h"
#include "cpu/tile/winograd/winograd_parts.h"

namespace convtune::cpu {

// Consecutive tiles of one row of tiles: `count` of them, `offset` tiles behind the task's first.
struct WinogradRun {
  std::int64_t n, row_phase, col_phase;
  std::int64_t row, col;  // the first tile's place among its image's tiles, those of these phases
  std::int64_t offset, count;
};

struct WinogradTask {
  std::int64_t group, first_tile, tiles;
  std::int64_t first_block, last_block;  // register tiles of output channels
};

// The output is cut into tiles of m x m pixels, counted row by row and image by image; a task is a run of
// consecutive tiles and a range of output channels. With a dilation outputs that lie so far apart read inputs
// that do, and no others: an image is as many smaller ones, its phases, without.
struct WinogradLayout : FilterBlocks {
  // tile: outputs along an axis. register_filters: output channels of a register tile. task_tiles,
  // task_filters: of a task, at most; all output channels where it is 0.
  WinogradLayout(const ConvProblem& problem, std::int64_t tile, std::int64_t register_filters,
                 std::int64_t task_tiles, std::int64_t task_filters);

  std::int64_t group_channels;
  std::int64_t m, inputs, products;  // outputs and inputs of a tile along an axis; products = inputs^2
  WinogradAxis rows_axis, cols_axis;
  // Channels that each product is a sum over, a part of a channel counted as one, and those of the products
  // before it; the last entry has all of them.
  std::vector<std::int64_t> depth, first_channel;

  std::int64_t row_phases, col_phases;                          // of an image that have outputs
  std::int64_t image_rows, image_cols, image_tiles, all_tiles;  // tiles of a phase, and of all
  std::int64_t block_filters;
  std::int64_t tiles;  // of a task, at most
  std::int64_t tile_tasks, tasks;

  // Packed weights, in floats: [group][register tile][product][channel][output channel of the tile], then the
  // bias in the same padded order, then the weights as they came.
  std::int64_t packed_bias, packed_weights, packed_floats;

  // Offsets of the packed weights of a register tile for one product, and of an output channel's bias.
  std::int64_t packed_panel(std::int64_t group, std::int64_t block, std::int64_t product) const {
    return ((group * filter_blocks + block) * first_channel.back() +
            first_channel[static_cast<std::size_t>(product)]) *
           block_filters;
  }
  std::int64_t packed_bias_of(std::int64_t group, std::int64_t k) const {
    return packed_bias + group * filter_blocks * block_filters + k;
  }
  void pack(const ConvProblem& problem, const float* w, const float* bias, float* packed) const;

  // A part of channel 0 among the channels of its product: its other channels follow.
  std::int64_t part_channel(const WinogradPartProduct& row, const WinogradPartProduct& col) const {
    return (row.rank * cols_axis.parts_with[col.product] + col.rank) * group_channels;
  }

  WinogradTask task(std::int64_t index) const;  // those of the same tiles stand one after the other
  // The tiles of all tasks, where each takes whole units of them.
  std::int64_t issued_tiles(std::int64_t unit) const;

  // The tiles [first, first + count) of the problem as f(WinogradRun).
  template <class Visit>
  void for_each_run(std::int64_t first, std::int64_t count, Visit&& visit) const {
    for (std::int64_t offset = 0; offset < count;) {
      const std::int64_t tile = first + offset, col = tile % image_cols, image = tile / image_tiles;
      WinogradRun run{.n = image,
                      .row_phase = 0,
                      .col_phase = 0,
                      .row = tile % image_tiles / image_cols,
                      .col = col,
                      .offset = offset,
                      .count = count - offset < image_cols - col ? count - offset : image_cols - col};
      if (const std::int64_t phases = row_phases * col_phases; phases > 1) {
        run.n = image / phases;
        run.row_phase = image % phases / col_phases, run.col_phase = image % phases % col_phases;
      }
      visit(run);
      offset += run.count;
    }
  }
};

}  // namespace convtune::cpu
