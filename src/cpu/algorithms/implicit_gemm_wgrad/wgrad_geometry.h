// Extents and offsets of the gradient of weights: a product over output pixels of x, shifted by a tap, and
// dy. Plain arithmetic.
//
// Pixels come in chunks: some output rows of one frame. Of a chunk both tensors are copied into panels, in
// blocks of channels that follow each other for every pixel:
//
//   x's panel     [block][frame of the filter][row][column][channel of the block]
//   dy's panel    [block][row][column][filter of the block]
//   a task's sums [block of x][block of dy][tap][word][lanes]
//
// Blocks of one tensor fill vectors, those of the other are as many words as a register tile has rows.
// Depthwise, both fill vectors. The chunks are cut into `splits` ranges, a number of the config and not of
// the threads: a task is a range of chunks, a group and a block of filters, and partial sums of ranges are
// added in their order.
#pragma once

#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/memory_plan.h"

namespace convtune::cpu {

// The search space of the gradient of weights.
struct WgradConfig {
  int vector_bits = 512, vectors = 1, words = 0, rows = 1, filters = 0, splits = 1;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 30;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("vectors", self.vectors, 1, 4, "register tile: vectors of channels");
    field("words", self.words, 0, 1, "filters fill vectors, and channels are words; 0: the other way round");
    field("rows", self.rows, 1, kMost, "output rows of a chunk");
    field("filters", self.filters, 0, kMost, "filters of a task; 0: all of a group");
    field("splits", self.splits, 1, 4096, "ranges of chunks, whose partial sums are added at the end");
  }
};

bool is_depthwise(const ConvProblem& problem);  // one channel and one filter a group, and several groups

struct WgradGeometry {
  WgradGeometry(const ConvProblem& problem, const WgradConfig& config, int lanes, int tile_rows);

  bool depthwise;
  std::int64_t groups, channels, filters;  // a group's; depthwise, one group has all of them
  std::int64_t taps;
  std::int64_t x_block, dy_block, x_blocks, dy_blocks;  // dy's of a task
  std::int64_t task_filters, filter_tasks, tasks;
  std::int64_t rows, row_chunks, chunks, splits;
  std::int64_t window_rows;          // input rows of a chunk
  std::int64_t x_pixels, dy_pixels;  // of a panel's block
  std::int64_t tile;                 // floats of sums of a tap
  std::int64_t tiles;                // of a task

  // A thread's memory, in floats: where each begins.
  MemoryPlan memory;
  std::int64_t x_panel, dy_panel, sums, bias, runs;
};

}  // namespace convtune::cpu
