// What a transposing kernel is compiled for: shared by the kernel and by the host that launches it.
#pragma once

namespace convtune {

// Each of a batch of matrices, [rows][cols] to [cols][rows]; NCHW to NHWC is rows = C, cols = H*W, and back
// is rows = H*W, cols = C. A block moves one tile of a matrix through shared memory.
struct TransposeConfig {
  long long rows = 1, cols = 1;

  static constexpr int threads = 256;
  static constexpr int tile_elements = 2048;
  static constexpr int narrow = 32;  // a warp: reads and writes of this many neighbours are whole lines

  // A matrix of few rows (an image's channels) is taken whole, and a longer stretch of columns with it.
  constexpr int tile_rows() const {
    if (rows < narrow) return static_cast<int>(rows);
    if (cols >= narrow) return narrow;
    return at_most(rows, tile_elements / static_cast<int>(cols) / narrow * narrow);
  }
  constexpr int tile_cols() const {
    if (cols < narrow) return static_cast<int>(cols);
    return at_most(cols, tile_elements / tile_rows() / narrow * narrow);
  }
  // Floats from row to row in shared memory, chosen so that the threads of a warp, which write out one
  // column after the other, read from 32 different banks.
  constexpr int pitch() const {
    if (tile_rows() >= narrow) return tile_cols() | 1;
    return (tile_cols() + 31) / 32 * 32 + (narrow + tile_rows() - 1) / tile_rows();
  }
  constexpr long long row_tiles() const { return (rows + tile_rows() - 1) / tile_rows(); }
  constexpr long long col_tiles() const { return (cols + tile_cols() - 1) / tile_cols(); }

 private:
  static constexpr int at_most(long long extent, int limit) {
    return extent < limit ? static_cast<int>(extent) : limit;
  }
};

}  // namespace convtune
