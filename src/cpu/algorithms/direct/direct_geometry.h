// Layout of everything inside the direct convolution: tiles of the output, the staged window of the input
// that a tile reads, and the filter taps as offsets into that window. Plain arithmetic.
//
// A position of a tile is row * pitch + column of an output pixel. The window keeps, for each input
// channel, one plane a stride phase (rows h with the same h mod stride_h, columns likewise):
//
//   stride 2, 3 taps:   input columns  0 1 2 3 4 5 6 ...    phase 0: 0 2 4 6 ...   taps 0, 2
//                                                           phase 1: 1 3 5 ...     tap 1
//
// so that moving one output pixel moves one element in every plane, whatever the stride, and a
// filter tap is ONE constant offset from a position's origin.
//
// All of that is counted in words, which are what a lane multiplies at a time: an f32 value, or a pair of
// bf16 values whose products are added (vdpbf16ps). With an even stride the pairs are neighbouring columns,
// which halves the stride and the filter's columns; with a stride of 1 neighbouring channels, and the columns
// from each on of an odd last channel.
//
// Vectors run over positions in one of two ways. flat: on from row to row, so that the pitch - cols
// elements between two rows are computed for nothing, and results go through a buffer that is cut
// into rows (unless there is nothing between two rows). Row by row: a vector's tail at the end of a
// row is for nothing, and results go from registers straight to the output. With a copy of the window for
// each column of the filter nothing lies between rows, and vectors run on to whole ones.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/axis_phases.h"
#include "cpu/tile/cut_lines.h"
#include "cpu/tile/line_blocks.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/output_tiles.h"
#include "cpu/tile/stagger.h"

namespace convtune::cpu {

// The search space of the direct convolution.
struct DirectConfig {
  int vector_bits = 512, channels = 6, vectors = 4, rows = 1, cols = 0, filters = 0, flat = 1, stream = 0,
      staged = 1;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 30;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("channels", self.channels, 1, 64, "register tile: output channels");
    field("vectors", self.vectors, 1, 64, "register tile: vectors of positions");
    field("rows", self.rows, 1, kMost, "output tile: rows");
    field("cols", self.cols, 0, kMost, "output tile: columns; 0: the whole width");
    field("filters", self.filters, 0, kMost,
          "output channels that a task works through on one staged window; 0: all");
    field("flat", self.flat, 0, 1, "vectors run on from row to row; 0: every row begins a new vector");
    field("stream", self.stream, 0, 1, "1: outputs go past the caches, straight from registers");
    field(
        "staged", self.staged, 0, 2,
        "the window is copied to the cache; 0: x is read where it lies, 1x1 alone; 2: a copy for each column "
        "of the filter, with nothing between rows");
  }
};

// Phases where each tap has a copy of its own (staged=2), with a stride of 1: a tap's phase is tap *
// dilation, its unit 0.
AxisPhases axis_copies(std::int64_t taps, std::int64_t dilation);

// Output pixels that vectors run through without a gap: a tile's where flat, else a row of it.
struct DirectLines {
  std::int64_t count;   // lines of one image and group
  std::int64_t length;  // positions
  std::int64_t rows;    // output rows that one touches
};

// The problem whose elements are the words of this one's, of as many outputs.
ConvProblem in_words(const ConvProblem& problem);
// True where its words are pairs of channels: bf16 with a stride of 1.
bool pairs_channels(const ConvProblem& problem);

// The numbers of a config without its list of taps: in no time, as ranking wants them.
struct DirectExtents : OutputTiles, FilterBlocks {
  DirectExtents(const ConvProblem& problem, const DirectConfig& config, int lanes);

  // Problem, per group, in words.
  ConvProblem words;
  std::int64_t group_channels, taps;
  AxisExtent rows_extent, cols_extent;

  std::int64_t pitch;  // window elements from one output row to the next; whole vectors where not flat
  std::int64_t block;  // positions a register tile covers

  // A thread's memory, in floats. Where x is read as it lies, a plane is its own and nothing is staged.
  std::int64_t plane, channel;  // one phase plane, one input channel
  MemoryPlan memory;
  std::int64_t window, sums, cut_lines;  // offsets of each; cut_lines -1: none (cpu/tile/cut_lines.h)

  std::int64_t tasks;         // n * groups * row_tiles * col_tiles * filter_tasks
  std::int64_t packed_block;  // floats of one register tile's weights
  bool shifted;               // the window has a copy for each column of the filter
  bool straight;              // a register tile's outputs are contiguous: no buffer, no cutting into rows
  std::int64_t line_unit;     // vectors that no register tile of a line cuts (cpu/tile/line_blocks.h)

  std::array<DirectLines, 4> lines;  // lines of full tiles and of those at the right and lower edges

  // Vector multiply-adds that the kernel issues for the whole problem, padding and junk included,
  // times lanes: what the arithmetic bound of a config counts.
  double issued_multiply_adds;
};

struct DirectGeometry : DirectExtents {
  DirectGeometry(const ConvProblem& problem, const DirectConfig& config, int lanes);

  AxisPhases rows_axis, cols_axis;
  // Taps: the offset of each one's word in the window, and which of an output channel's weights that word's
  // lower and upper half are multiplied by; -1 where words have no upper half, or none that is multiplied.
  struct Halves {
    std::int64_t lower, upper;
  };
  std::vector<std::int32_t> tap_offsets;
  std::vector<Halves> tap_weights;
  std::int64_t whole_taps;  // taps before those whose word has an upper half that is not multiplied
};

}  // namespace convtune::cpu
