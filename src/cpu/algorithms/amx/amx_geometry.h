// Layouts inside the convolution by AMX's tiles. Plain arithmetic.
//
// A tile of A is 16 positions that lie equally far apart, so positions run on from row to row of the window
// and over the columns that only the filter reaches: those sums are for nothing. The window has a plane for
// each phase of rows (direct_geometry.h), so that this holds with strides too:
//
//   window   [row phase][row][column][channel, an even number]           bf16
//
// A run of the window is what one row of a filter multiplies, all columns and channels, where columns follow
// each other; else the channels of one tap. A run is cut into chunks of 32 elements and a tail.
//
//   packed weights  [group][block of filters][run][chunk or tail][16 filters of the block][word][filter][2]
//
// Gathered, what a pixel multiplies is one run: all rows of the filter, columns and channels, copied side by
// side. First layers fill chunks by that (7x7 with 3 channels: 5, not 7), of pixels alone, whose rows begin
// at lines. While the pixels of some register tiles, a panel, are multiplied, the next ones are gathered.
//
//   panel    [register tile][chunk of filter row, filter column, channel][pixel][element], zeros at the end
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/algorithms/amx/amx_tiles.h"
#include "cpu/tile/axis_phases.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/output_tiles.h"

namespace convtune::cpu {

// The search space.
struct AmxConfig {
  int pixel_tiles = 2, filter_tiles = 2, rows = 1, cols = 0, filters = 0, gathered = 0, stream = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 30;
    field("pixel_tiles", self.pixel_tiles, 1, 4, "register tile: times 16 positions");
    field("filter_tiles", self.filter_tiles, 1, 4, "register tile: times 16 output channels");
    field("rows", self.rows, 1, kMost, "output tile: rows");
    field("cols", self.cols, 0, kMost, "output tile: columns; 0: the whole width");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
    field("gathered", self.gathered, 0, 1,
          "what a pixel multiplies is copied side by side; 0: read in the window");
    field("stream", self.stream, 0, 2,
          "outputs: 1: go past the caches, where they are whole lines; 2: their lines are fetched ahead");
  }
};

// The numbers of a config without its list of runs: in no time, as ranking wants them.
struct AmxExtents : OutputTiles, FilterBlocks {
  AmxExtents(const ConvProblem& problem, const AmxConfig& config);

  // Positions from one output row's to the next's.
  std::int64_t pitch_of(const OutputTile& tile) const { return panel > 0 ? tile.cols : pitch; }
  std::int64_t positions(const OutputTile& tile) const {
    return (tile.rows - 1) * pitch_of(tile) + tile.cols;
  }

  std::int64_t group_channels, tasks;

  // Steps in elements.
  std::int64_t row_step, col_step;  // input rows (columns) from one of the window's to the next
  AxisExtent rows_extent;
  std::int64_t channels;  // channels of a group, an even number unless they are gathered
  std::int64_t position, row;
  std::int64_t pitch;  // positions of the window from one output row's to the next's
  std::int64_t window_cols;

  std::int64_t window_runs, window_run;  // runs of a filter in the window, elements of one
  std::int64_t run, chunks, tail;        // and of one that is multiplied, which may be all of them
  std::int64_t run_count;                // of those
  std::int64_t words;                    // of a filter

  std::int64_t call;  // positions of a register tile
  // Pixels that are gathered together, or 0: those of some register tiles.
  std::int64_t panel;
  // Steps of what tiles load: from position to position, and from chunk to chunk of a register tile.
  std::int64_t step() const { return panel > 0 ? kAmxElements : position; }
  std::int64_t chunk_step() const { return panel > 0 ? kAmxElements * call : kAmxElements; }

  bool keeps_all;  // sums of a whole tile, not those of two calls in turns

  // A thread's memory, in floats: where each begins. Of gathered pixels a panel is multiplied, one gathered.
  MemoryPlan memory;
  std::int64_t window, gathered, sums;
  std::int64_t window_elements, sums_floats;  // the window's with what tiles read behind it
};

struct AmxGeometry : AmxExtents {
  AmxGeometry(const ConvProblem& problem, const AmxConfig& config);

  AxisPhases rows_axis;
  std::vector<std::int64_t> runs;  // offsets in the window at which they begin, in elements
};

}  // namespace convtune::cpu
