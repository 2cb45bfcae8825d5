// Layouts inside Winograd's convolution along one axis: F(2, 3) of an image's rows, tap by tap
// along them. Two rows of outputs that lie above one another are made at once,
//
//   rows of the input -> column phases -> B down the rows = V -> products, A and outputs in registers
//
// so that vectors run over columns, nothing is interleaved, and a filter of three rows has four products in
// place of six. Filters of other sizes and strides down the rows are cut into parts (winograd_parts.h). Half
// of what both axes would save, but with sums that are twice as long: for few channels, as of a first layer,
// whose errors both axes would not let average out, and whose transforms would cost what they save. V has
// [product of a part][channel][two rows][column phase][column]. Plain arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/axis_phases.h"
#include "cpu/tile/cut_lines.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/output_tiles.h"
#include "cpu/tile/winograd/winograd_parts.h"

namespace convtune::cpu {

// The search space.
struct WinogradRowsConfig {
  int vector_bits = 512, channels = 4, vectors = 3, rows = 1, filters = 0, stream = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 24;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("channels", self.channels, 1, 64, "register tile: output channels");
    field("vectors", self.vectors, 1, 64, "register tile: vectors of columns");
    field("rows", self.rows, 1, kMost, "pairs of output rows of a task");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
    field("stream", self.stream, 0, 2,
          "1: outputs go past the caches; 2: staggered, where planes lie a multiple of 2 KiB apart");
  }
};

// Some pairs of rows of an image's group, and the register tiles of output channels [first_block,
// last_block).
struct WinogradRowsTask {
  std::int64_t n, group, row, pairs;  // row: the first output row
  std::int64_t first_block, last_block;
};

struct WinogradRowsGeometry : FilterBlocks {
  WinogradRowsGeometry(const ConvProblem& problem, const WinogradRowsConfig& config, int lanes);

  WinogradRowsTask task(std::int64_t index) const;  // tasks of the same rows follow each other

  // Problem, per group.
  std::int64_t groups, group_channels, output_rows, output_cols;
  WinogradAxis axis;
  AxisPhases cols;

  // Tasks.
  std::int64_t pairs, row_tasks;  // pairs: of a task, at most
  std::int64_t tasks;

  // A thread's memory, in floats: sizes, and where each begins. A row of V begins kLead columns before the
  // first output's.
  static constexpr std::int64_t kLead = 16;  // the widest vector
  std::int64_t pitch, row_floats;            // of one column phase, of all
  std::int64_t window_rows;                  // rows of the input that a task reads
  MemoryPlan memory;
  std::int64_t rows, transformed, sums, ring;
  std::int64_t cut_lines;     // three for each filter (WinogradRowsExecutable::lines_of()); -1: none
  std::int64_t product_step;  // from one product of a part to the next
  bool along_rows;            // a register tile of filters goes along whole rows
  std::int64_t line_unit;     // vectors that no register tile cuts (cpu/tile/line_blocks.h)
  bool may_stagger;           // rows and register tiles are whole lines of the cache, which meet

  // A tap of a register tile and its place in V; taps are in the order of their products 1, 2, 0, 3.
  struct Tap {
    std::size_t part;
    int product;
    std::int64_t channel, column;
  };
  std::vector<Tap> taps;
  std::vector<std::int32_t> offsets;
  std::array<std::int64_t, 4> counts;  // taps of each product, in that order

  // Packed weights, in floats: [group][register tile][tap][output channel of the tile], then the bias in the
  // same padded order, then the weights as they came, then what bounds a sum (WinogradRows::pack()).
  std::int64_t packed_block, packed_bias, packed_weights, packed_bounds, packed_floats;

  // Vector multiply-adds that are issued for the whole problem, junk included, times lanes.
  double issued_multiply_adds;

  std::int64_t place_of(std::size_t part, int product) const;  // among the products of parts in V
};

}  // namespace convtune::cpu
