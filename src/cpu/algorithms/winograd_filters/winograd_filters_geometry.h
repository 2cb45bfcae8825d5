// Layouts inside Winograd's convolution with vectors over output channels, of NCHW tensors: F(2
// x 2, 3 x 3) with strides of 1 and 2. The tiles of an image are few where it is small, and those that fill
// up a last vector would be a third of all products; output channels fill their vectors.
//
//   rows of a channel -> B down them -> phases -> B along them = V -> multiply = M -> A -> transposed ->
//   output
//
// The input's transform takes a strip of tiles of all channels, as many as a vector has lanes, and keeps
// everything in registers. V has [block of tiles][product][channel of the product][tile], M has
// [product][tile][output channel of a register tile]. Plain arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/winograd/winograd_parts.h"

namespace convtune::cpu {

// The search space.
struct WinogradFiltersConfig {
  int vector_bits = 512, block = 14, vectors = 2, tiles = 98, filters = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 24;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("block", self.block, 1, 64, "register tile: tiles");
    field("vectors", self.vectors, 1, 64, "register tile: vectors of output channels");
    field("tiles", self.tiles, 1, kMost, "tiles that are transformed at once");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
  }
};

// Consecutive tiles of one row of tiles: `count` of them, `offset` tiles behind the task's first.
struct WinogradTileRun {
  std::int64_t n, row, col, offset, count;
};

struct WinogradFiltersTask {
  std::int64_t group, first_tile, tiles;
  std::int64_t first_block, last_block;  // register tiles of output channels
};

struct WinogradFiltersGeometry {
  WinogradFiltersGeometry(const ConvProblem& problem, const WinogradFiltersConfig& config, int lanes);

  // Problem, per group.
  std::int64_t group_channels, group_filters;
  WinogradAxis axis;    // both
  std::int64_t inputs;  // that a tile reads along an axis
  // Channels that each product is a sum over, and those of the products before it.
  std::vector<std::int64_t> depth, first_channel;
  // Floats of V before each product, and rows of tiles before channel 0 of the products of inputs i and j.
  std::vector<std::int64_t> panels, places;
  std::int64_t image_rows, image_cols, image_tiles, all_tiles;

  // A task, at most.
  std::int64_t tiles, blocks;  // blocks: register tiles of tiles
  std::int64_t pitch;          // floats of a block of tiles in V
  std::int64_t block_filters, filter_blocks, task_filter_blocks, filter_tasks;
  std::int64_t tile_tasks, tasks;

  // A thread's scratch memory, in floats: V from 0 on, M, rows of outputs. Copied inputs lie behind it.
  static constexpr std::int64_t kRunTiles = 16;
  std::int64_t block_step;  // from a block of tiles to the next in V
  std::int64_t product_step;
  std::int64_t multiplied, sums, scratch;

  // Packed weights, in floats: [group][register tile][product][channel][output channel of the tile], then the
  // bias in the same padded order, then the weights as they came.
  std::int64_t packed_bias, packed_weights, packed_floats;

  // Vector multiply-adds that are issued for the whole problem, junk included, times lanes.
  double issued_multiply_adds;

  std::int64_t packed_panel(std::int64_t group, std::int64_t block, std::int64_t product) const {
    return ((group * filter_blocks + block) * first_channel.back() +
            first_channel[static_cast<std::size_t>(product)]) *
           block_filters;
  }
  std::int64_t packed_bias_of(std::int64_t group, std::int64_t k) const {
    return packed_bias + group * filter_blocks * block_filters + k;
  }

  WinogradFiltersTask task(std::int64_t index) const;  // those of the same tiles stand one after the other

  // The tiles [first, first + count) of the problem as f(WinogradTileRun).
  template <class Visit>
  void for_each_run(std::int64_t first, std::int64_t count, Visit&& visit) const {
    for (std::int64_t offset = 0; offset < count;) {
      const std::int64_t tile = first + offset, col = tile % image_cols;
      const std::int64_t run = count - offset < image_cols - col ? count - offset : image_cols - col;
      visit(WinogradTileRun{tile / image_tiles, tile % image_tiles / image_cols, col, offset, run});
      offset += run;
    }
  }
};

// The scratch bytes of a config, in doubles: extents from outside may overflow integers.
double winograd_filters_scratch_bytes(const ConvProblem& problem, const WinogradFiltersConfig& config);

}  // namespace convtune::cpu
