// Transposes a batch of matrices, [rows][cols] to [cols][rows]: conversions of layout before and after a
// kernel. One block a tile; neighbouring threads read along a row and write along a column. Extents are
// arguments here: such a kernel waits for memory, and few are compiled. Blocks follow each other along a row
// of tiles, or down a column where rows are channels: so all parts of a pixel's line are in L2 at a time.
#include "cuda/launch/transpose_tile.h"
#include "cuda/ptx/grid.cuh"

namespace convtune {

// The first row and column of a block's tile, and the first element of its matrix.
struct TransposePlace {
  long long matrix, row, col;

  __device__ TransposePlace(int tile_rows, int tile_cols, long long rows, long long cols, unsigned row_tiles,
                            unsigned col_tiles, bool down = false) {
    const unsigned line = blockIdx.x / (down ? row_tiles : col_tiles);
    const unsigned lines = down ? col_tiles : row_tiles;
    matrix = line / lines * (rows * cols);
    row = static_cast<long long>(down ? blockIdx.x % row_tiles : line % row_tiles) * tile_rows;
    col = static_cast<long long>(down ? line % col_tiles : blockIdx.x % col_tiles) * tile_cols;
  }
};

// Matrices of few rows or columns.
template <TransposeConfig config, class Element>
__global__ void __launch_bounds__(TransposeConfig::kThreads)
    transpose(const Element* __restrict__ input, Element* __restrict__ output, long long rows, long long cols,
              unsigned row_tiles, unsigned col_tiles) {
  ptx::wait_for_earlier_grids();
  constexpr int kRows = config.tile_rows, kCols = config.tile_cols, kPitch = config.pitch();
  __shared__ unsigned tile[kRows * kPitch];  // a bank an element, narrow ones too
  const TransposePlace first(kRows, kCols, rows, cols, row_tiles, col_tiles);

#pragma unroll
  for (int i = threadIdx.x; i < kRows * kCols; i += TransposeConfig::kThreads) {
    const int row = i / kCols, col = i % kCols;
    if (first.row + row < rows && first.col + col < cols)
      tile[row * kPitch + col] = input[first.matrix + (first.row + row) * cols + first.col + col];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kCols; i += TransposeConfig::kThreads) {
    const int col = i / kRows, row = i % kRows;
    if (first.row + row < rows && first.col + col < cols)
      output[first.matrix + (first.col + col) * rows + first.row + row] =
          static_cast<Element>(tile[row * kPitch + col]);
  }
}

// This many elements, moved at once.
template <class Element, int count>
struct alignas(count * sizeof(Element)) Elements {
  unsigned words[count * sizeof(Element) / 4];
};

// Tells whether rows of so many elements can be moved so many at a time.
template <int count, class Element>
__device__ bool moves_at_once(const Element* matrix, long long elements) {
  return elements % count == 0 &&
         reinterpret_cast<unsigned long long>(matrix) % (count * sizeof(Element)) == 0;
}

// A tile in shared memory, of matrices that are not narrow. Loads come before everything else, so that all
// are under way at once: those outside of the matrix are of its last row or column, and go nowhere.
template <class Element, int cols_of_tile, int words_of_tile>
struct Tile {
  using T = WideTranspose<sizeof(Element), cols_of_tile, words_of_tile>;
  unsigned* tile;
  long long rows, cols;
  TransposePlace first;

  __device__ const Element* row_of(const Element* input, int word, int e) const {
    const long long row = first.row + word * T::kOfWord + e;
    return input + (row < rows ? row : rows - 1) * cols;
  }
  template <int kCount>
  __device__ void load(const Element* __restrict__ input) const {
    constexpr int kVectors = T::kCols / kCount * T::kWords / T::kThreads;  // per thread
    using Vector = Elements<Element, kCount>;
    const auto col_of = [](int i) { return (i % 8 + i / (8 * T::kWords) * 8) * kCount; };
    const auto word_of = [](int i) { return i / 8 % T::kWords; };
    Vector vectors[kVectors][T::kOfWord];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int e = 0; e < T::kOfWord; ++e) {
        const int i = threadIdx.x + v * T::kThreads;
        const long long col = first.col + col_of(i);
        vectors[v][e] = *reinterpret_cast<const Vector*>(row_of(input, word_of(i), e) +
                                                         (col < cols ? col : cols - kCount));
      }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = threadIdx.x + v * T::kThreads, col = col_of(i), word = word_of(i);
#pragma unroll
      for (int j = 0; j < kCount / T::kOfWord; ++j) {  // word j of 4 bytes of each row
        const unsigned low = vectors[v][0].words[j], high = vectors[v][T::kOfWord - 1].words[j];
        if constexpr (T::kOfWord == 1) {
          tile[T::at(col + j, word)] = low;
        } else {
          tile[T::at(col + 2 * j, word)] = __byte_perm(low, high, 0x5410);
          tile[T::at(col + 2 * j + 1, word)] = __byte_perm(low, high, 0x7632);
        }
      }
    }
  }
  __device__ void load_elements(const Element* __restrict__ input) const {
    constexpr int kAtOnce = 8;  // words of a thread
#pragma unroll 1
    for (int begin = threadIdx.x; begin < T::kCols * T::kWords; begin += kAtOnce * T::kThreads) {
      unsigned words[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * T::kThreads;
        const long long col = first.col + i % T::kCols, known = col < cols ? col : cols - 1;
        words[j] = row_of(input, i / T::kCols, 0)[known];
        if constexpr (T::kOfWord == 2)
          words[j] |= static_cast<unsigned>(row_of(input, i / T::kCols, 1)[known]) << 16;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * T::kThreads;
        tile[T::at(i % T::kCols, i / T::kCols)] = words[j];
      }
    }
  }

  template <int kCount>
  __device__ void store(Element* __restrict__ output) const {
    using Vector = Elements<Element, kCount>;
    constexpr int kPieces = T::kRows / kCount;
#pragma unroll
    for (int i = threadIdx.x; i < T::kCols * kPieces; i += T::kThreads) {
      const int piece = i % kPieces, col = i / kPieces;
      const long long row = first.row + piece * kCount;
      if (first.col + col < cols && row < rows)
        *reinterpret_cast<Vector*>(output + (first.col + col) * rows + row) =
            *reinterpret_cast<const Vector*>(tile + T::at(col, piece * kCount / T::kOfWord));
    }
  }
  __device__ void store_elements(Element* __restrict__ output) const {
#pragma unroll 8
    for (int i = threadIdx.x; i < T::kCols * T::kRows; i += T::kThreads) {
      const int col = i / T::kRows, row = i % T::kRows;
      if (first.col + col < cols && first.row + row < rows)
        output[(first.col + col) * rows + first.row + row] =
            static_cast<Element>(tile[T::at(col, row / T::kOfWord)] >> row % T::kOfWord * 16);
    }
  }
};

// All other matrices. How many elements of a row of either can be moved at a time depends on extents and
// pointers alone, and so is the same for all threads: those of 16 bytes, of 8 (images of 14x14 halves), or
// one.
template <class Element, int cols_of_tile, int words_of_tile, bool down>
__global__ void __launch_bounds__(WideTranspose<sizeof(Element), cols_of_tile, words_of_tile>::kThreads)
    transpose_wide(const Element* __restrict__ input, Element* __restrict__ output, long long rows,
                   long long cols, unsigned row_tiles, unsigned col_tiles) {
  ptx::wait_for_earlier_grids();
  using T = WideTranspose<sizeof(Element), cols_of_tile, words_of_tile>;
  constexpr int kMost = T::kOfVector;
  __shared__ __align__(16) unsigned memory[T::kCols * T::kWords];
  const Tile<Element, cols_of_tile, words_of_tile> tile{
      memory, rows, cols, TransposePlace(T::kRows, T::kCols, rows, cols, row_tiles, col_tiles, down)};
  input += tile.first.matrix, output += tile.first.matrix;
  if (moves_at_once<kMost>(input, cols))
    tile.template load<kMost>(input);
  else if (moves_at_once<kMost / 2>(input, cols))
    tile.template load<kMost / 2>(input);
  else
    tile.load_elements(input);
  __syncthreads();
  if (moves_at_once<kMost>(output, rows))
    tile.template store<kMost>(output);
  else if (moves_at_once<kMost / 2>(output, rows))
    tile.template store<kMost / 2>(output);
  else
    tile.store_elements(output);
}

}  // namespace convtune
