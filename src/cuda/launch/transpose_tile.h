// The tiles of the transposing kernels: shared by the kernels and by the host that launches them.
#pragma once

namespace convtune {

// A matrix of few rows or columns (an image's channels) is moved in tiles of just as many, and longer ones:
// an element at a time.
struct TransposeConfig {
  int tile_rows, tile_cols;

  static constexpr int kThreads = 256;
  static constexpr int kNarrow = 32;  // a warp: reads and writes of this many neighbours are whole lines

  static constexpr bool is_narrow(long long rows, long long cols) { return rows < kNarrow || cols < kNarrow; }
  static constexpr TransposeConfig for_matrix(long long rows, long long cols) {
    constexpr int kElements = 2048;
    if (rows < kNarrow) return {static_cast<int>(rows), whole_warps(kElements / static_cast<int>(rows))};
    return {whole_warps(kElements / static_cast<int>(cols)), static_cast<int>(cols)};
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

// The tile of every other matrix, moved 16 or 8 bytes at a time. In shared memory it stands column after
// column, each 16 or 32 words: a word is an element, or two halves of neighbouring rows.
template <int element_bytes, int cols, int words = 32>
struct WideTranspose {
  static constexpr int kThreads = 256, kWords = words, kCols = cols;
  static constexpr int kOfWord = 4 / element_bytes, kOfVector = 16 / element_bytes;  // elements
  static constexpr int kRows = kWords * kOfWord;
  static constexpr int kTogether = 32 / kWords;  // columns as long as all banks
  // Chooses between a tile's usual columns and twice as many: a narrow matrix leaves less of a narrower idle.
  static constexpr int cols_for(long long matrix_cols) {
    constexpr int kUsual = 64 * kTogether;
    return element_bytes == 2 && matrix_cols > kUsual ? 2 * kUsual : kUsual;
  }

  // Pieces of four words change places, so that neither eight columns, kOfVector apart, of four words nor the
  // eight pieces of one column, or of two, meet at a bank.
  static constexpr int at(int col, int word) {
    const int line = col / kTogether, piece = (col % kTogether * kWords + word) / 4;
    return line * 32 + (piece ^ (col / kOfVector + line * kTogether) % 8) * 4 + word % 4;
  }
};

}  // namespace convtune
