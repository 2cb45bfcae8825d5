// Layouts inside Winograd's convolution. The output is cut into tiles of m x m pixels, counted
// row by row and image by image; a task is a run of consecutive tiles and a range of output channels:
//
//   input -> rows of a channel -> B along them -> B along columns = V -> multiply = M -> A = sums -> output
//
// all of it in a core's cache. With a dilation outputs that lie so far apart read inputs that do, and no
// others: an image is as many smaller ones, its phases, without. Channels first, vectors run over tiles, and
// V has a panel for each of the (m+2)^2 products and each block of vectors that a register tile takes:
// [product][block][channel][tiles of the block], M has [product][output channel of a chunk][tile]. Channels
// last, vectors run over channels: V has [product][four tiles][channel][tile], the weights have panels of
// vectors, M has [product][tile][output channel of a chunk]. So a register tile reads both of its panels from
// end to end; decomposed, both panels of all products. Plain arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/winograd/winograd_parts.h"
#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {

// The search space of Winograd's convolution.
struct WinogradConfig {
  int vector_bits = 512, tile = 2, channels = 8, vectors = 3, tiles = 96, filters = 0, chunk = 64, stream = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 24;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("tile", self.tile, 2, 4,
          "outputs of a tile along an axis: 2 or, of NHWC where precision is not fp32, 4");
    field("channels", self.channels, 1, 64,
          "register tile: output channels, or tiles where channels are last");
    field("vectors", self.vectors, 1, 64, "register tile: vectors of tiles, or of output channels");
    field("tiles", self.tiles, 1, kMost, "tiles that a task transforms at once");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
    field("chunk", self.chunk, 1, kMost, "output channels multiplied before their sums are transformed");
    field("stream", self.stream, 0, 1, "outputs go past the caches, of a filter that is cut into parts");
  }
};

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

struct WinogradGeometry {
  WinogradGeometry(const ConvProblem& problem, const WinogradConfig& config, int lanes);

  // Problem, per group.
  std::int64_t group_channels, group_filters;
  std::int64_t m, inputs, products;  // outputs and inputs of a tile along an axis; products = inputs^2
  bool decomposed;                   // into parts, of a filter that is not 3x3 of stride 1
  WinogradAxis rows_axis, cols_axis;
  // Channels that each product is a sum over, a part of a channel counted as one, and those of the products
  // before it; the last entry has all of them.
  std::vector<std::int64_t> depth, first_channel;
  std::int64_t together;  // products of a filter in parts that a register tile makes one after the other
  std::int64_t row_phases, col_phases;                          // of an image that have outputs
  std::int64_t image_rows, image_cols, image_tiles, all_tiles;  // tiles of a phase, and of all

  // A task, at most.
  std::int64_t tiles, stride;  // stride: the tiles, rounded up to whole vectors and cache lines
  std::int64_t block_filters;  // output channels of a register tile
  std::int64_t filter_blocks, task_filter_blocks, chunk_blocks, filter_tasks;  // blocks: register tiles
  std::int64_t chunk_filters;
  std::int64_t channel_rows;  // channels of a panel of V, rounded up to whole vectors where they are last
  std::int64_t tile_tasks, tasks;

  // Scratch memory of a thread, in floats: sizes, and where each begins.
  std::int64_t row_pitch, half_stride, sums_stride;  // row_pitch, decomposed: of a phase of a row
  bool down_first = false;                           // decomposed: which input transform
  std::int64_t strip_pitch = 0;                      // down first: of a row before it is split
  std::int64_t window_rows;                          // rows of the input that a row of tiles reads
  std::int64_t rows, half, transformed, multiplied, sums, scratch;  // channels last: rows is a pixel of zeros

  // Packed weights, in floats: [group][register tile][product][channel][output channel of the tile], then the
  // bias in the same padded order, then the weights as they came.
  std::int64_t packed_bias, packed_weights, packed_floats;

  // Vector multiply-adds that are issued for the whole problem, junk included, times lanes.
  double issued_multiply_adds;

  // A part of channel 0 among the channels of its product: its other channels follow.
  std::int64_t part_channel(const WinogradPartProduct& row, const WinogradPartProduct& col) const {
    return (row.rank * cols_axis.parts_with[col.product] + col.rank) * group_channels;
  }

  WinogradTask task(std::int64_t index) const;  // those of the same tiles stand one after the other

  // The tiles [first, first + count) of the problem as f(WinogradRun).
  template <class Visit>
  void for_each_run(std::int64_t first, std::int64_t count, Visit&& visit) const {
    for (std::int64_t offset = 0; offset < count;) {
      const std::int64_t tile = first + offset, col = tile % image_cols;
      const std::int64_t run = count - offset < image_cols - col ? count - offset : image_cols - col;
      const std::int64_t image = tile / image_tiles, phase = image % (row_phases * col_phases);
      visit(WinogradRun{.n = image / (row_phases * col_phases),
                        .row_phase = phase / col_phases,
                        .col_phase = phase % col_phases,
                        .row = tile % image_tiles / image_cols,
                        .col = col,
                        .offset = offset,
                        .count = run});
      offset += run;
    }
  }
};

// The scratch bytes of a config, in doubles: extents from outside may overflow integers.
double winograd_scratch_bytes(const ConvProblem& problem, const WinogradConfig& config);

}  // namespace convtune::cpu
