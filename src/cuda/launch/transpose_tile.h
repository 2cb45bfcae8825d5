// The tile of a transposing kernel: shared by the kernel and by the host that launches it.
#pragma once

namespace convtune {

// A block moves one tile of a matrix through shared memory. Matrices of few rows or columns (an image's
// channels) have tiles of just as many, and longer ones.
struct TransposeConfig {
  int tile_rows = 32, tile_cols = 64;

  static constexpr int kThreads = 256;
  static constexpr int kNarrow = 32;  // a warp: reads and writes of this many neighbours are whole lines

  static constexpr TransposeConfig for_matrix(long long rows, long long cols) {
    constexpr int kElements = 2048;
    if (rows < kNarrow) return {static_cast<int>(rows), whole_warps(kElements / static_cast<int>(rows))};
    if (cols < kNarrow) return {whole_warps(kElements / static_cast<int>(cols)), static_cast<int>(cols)};
    return {};
  }
  // Floats from row to row in shared memory, chosen so that the threads of a warp, which write out one
  // column after the other, read from 32 different banks.
  constexpr int pitch() const {
    if (tile_rows >= kNarrow) return tile_cols | 1;
    return tile_cols + (kNarrow + tile_rows - 1) / tile_rows;
  }

 private:
  static constexpr int whole_warps(int extent) { return extent / kNarrow * kNarrow; }
};

}  // namespace convtune
