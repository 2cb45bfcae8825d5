// Layout of everything inside the implicit GEMM: tiles of the output, the window of the input that a tile
// reads, blocks of output channels and passes over input channels. Plain arithmetic.
//
// A sum of the GEMM is over filter taps and input channels, counted in words (implicit_gemm_kernels.h).
// Output channels lie in vector lanes; pixels of a tile are numbered row by row, and rows may be of any size:
// register tiles take pixels by their offsets in the window.
//
//   packed weights   [group][block of output channels][pass][tap][word][lanes of the block]
//   window           [pass][row][column][word, padded]
//
// Joined, what a row of the filter multiplies is one tap: its columns and channels follow each other, as they
// lie in channels-last tensors, and only the end of a row is a part of a word.
//
//   window           [row][column][channel]
//
// Joined where x lies, in NCHW, what a row of the filter multiplies in each channel is a tap: nothing is
// woven, and words are columns.
//
// A window of a filter of one row (or column) holds only the rows (columns) that outputs read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/output_tiles.h"

namespace convtune::cpu {

// The search space of the implicit GEMM.
struct ImplicitGemmConfig {
  int vector_bits = 512, bf16 = 0, pixels = 12, vectors = 2, rows = 1, cols = 0, channels = 0, filters = 0,
      staged = 1, joined = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 30;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("bf16", self.bf16, 0, 1, "pairs of bf16 are multiplied; 0: f32, to which all else is widened");
    field("pixels", self.pixels, 1, 14, "register tile: output pixels; 13 and 14: of planes, side by side");
    field("vectors", self.vectors, 1, 4, "register tile: vectors of output channels");
    field("rows", self.rows, 1, kMost, "output tile: rows");
    field("cols", self.cols, 0, kMost, "output tile: columns; 0: the whole width");
    field("channels", self.channels, 0, kMost, "input channels a pass over the sums; 0: all in one");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
    field("staged", self.staged, 0, 1, "the window is copied to the cache; 0: x is read where it lies");
    field("joined", self.joined, 0, 1, "channels last, a row of the filter is one run of words; 0: a tap is");
  }
};

// True where the filter's rows are read in the planes of x.
bool reads_planes(const ConvProblem& problem, const ImplicitGemmConfig& config);

// True where, besides, the pixels of a tile follow each other in a plane, and the filter has one column.
bool reads_side_by_side(const ConvProblem& problem, const ImplicitGemmConfig& config);

struct ImplicitGemmGeometry : OutputTiles, FilterBlocks {
  ImplicitGemmGeometry(const ConvProblem& problem, const ImplicitGemmConfig& config, int lanes);

  std::int64_t words_of(std::int64_t pass) const { return std::min(pass_words, words - pass * pass_words); }

  // Floats before a block's weights of a pass, of one group.
  std::int64_t packed_offset(const FilterBlock& block, std::int64_t pass) const {
    return taps * lanes * (block.first * words + block.count * pass * pass_words);
  }

  int lanes;
  std::int64_t group_channels, tasks;
  std::int64_t taps;                       // joined, rows of the filter; [channel][row] where planes are read
  bool half;                               // the last word is its lower half
  std::int64_t words, pass_words, passes;  // of a tap's input channels, or of a row's

  // The window: its extents, and steps in bytes. image_step: where x is read where it lies.
  std::int64_t window_rows, window_cols, col_step, row_step, image_step, pass_step;
  std::int64_t window_floats;           // that a task stages; 0 where x is read where it lies
  std::int64_t input_row, input_col;    // input rows (columns) from one of the window to the next
  std::int64_t stride_row, stride_col;  // window rows (columns) from one output's to the next's
  std::int64_t dilation_row, dilation_col;

  std::int64_t sums_step;  // floats of a pixel's sums

  // A thread's memory, in floats: where each begins. Of every pixel of a tile: its offset in the window, and
  // its index in y.
  MemoryPlan memory;
  std::int64_t window, sums, inputs, outputs;
};

}  // namespace convtune::cpu
