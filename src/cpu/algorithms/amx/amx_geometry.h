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

// One tile of the output: its first pixel, and what the output leaves of it.
struct AmxTile {
  std::int64_t index, group, image, row, col, rows, cols;
};

// Filters that register tiles take together, times 16.
struct AmxBlock {
  std::int64_t first, count;
};

struct AmxGeometry {
  AmxGeometry(const ConvProblem& problem, const AmxConfig& config);

  AmxTile tile(std::int64_t index) const;  // index = task / filter_tasks
  AmxBlock block(std::int64_t index) const;
  // Positions from one output row's to the next's.
  std::int64_t pitch_of(const AmxTile& tile) const { return panel > 0 ? tile.cols : pitch; }
  std::int64_t positions(const AmxTile& tile) const { return (tile.rows - 1) * pitch_of(tile) + tile.cols; }

  std::int64_t groups, group_channels, group_filters;
  std::int64_t batch, input_rows, input_cols, output_rows, output_cols;

  std::int64_t tile_rows, tile_cols, row_tiles, col_tiles;
  std::int64_t filter_tiles, blocks, task_blocks, filter_tasks;
  std::int64_t tasks;

  // Steps in elements.
  std::int64_t channels;  // of a group, an even number unless they are gathered
  std::int64_t position, row;
  std::int64_t pitch;                // positions of the window from one output row's to the next's
  std::int64_t row_step, col_step;   // input rows (columns) from one of the window's to the next
  std::int64_t window_cols, window;  // the window's elements, with what tiles read behind it
  AxisPhases rows_axis;

  std::vector<std::int64_t> runs;  // where they begin in the window, in elements
  std::int64_t window_run;         // elements of one there
  std::int64_t run, chunks, tail;  // and of one that is multiplied, which may be all of them
  std::int64_t words;              // of a filter

  std::int64_t call;  // positions of a register tile
  // Pixels that are gathered together, or 0: those of some register tiles.
  std::int64_t panel;
  std::int64_t gathered() const { return 2 * panel * run; }  // elements: one is multiplied, one gathered
  std::int64_t run_count() const { return panel > 0 ? 1 : static_cast<std::int64_t>(runs.size()); }
  // Steps of what tiles load: from position to position, and from chunk to chunk of a register tile.
  std::int64_t step() const { return panel > 0 ? kAmxElements : position; }
  std::int64_t chunk_step() const { return panel > 0 ? kAmxElements * call : kAmxElements; }

  bool keeps_all;     // sums of a whole tile, not those of two calls in turns
  std::int64_t sums;  // floats that a task keeps
};

}  // namespace convtune::cpu
