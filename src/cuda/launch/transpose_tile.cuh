// Transposes a batch of matrices, [rows][cols] to [cols][rows]: the layout conversions that are counted
// with a vendor's channels-last answer. One block a tile; neighbouring threads read along a row and write
// along a column. Extents are arguments here: such a kernel waits for memory, and few are compiled.
#include "cuda/launch/transpose_tile.h"

namespace convtune {

template <TransposeConfig config, class Element>
__global__ void __launch_bounds__(TransposeConfig::kThreads)
    transpose(const Element* __restrict__ input, Element* __restrict__ output, long long rows, long long cols,
              unsigned row_tiles, unsigned col_tiles) {
  constexpr int kRows = config.tile_rows, kCols = config.tile_cols, kPitch = config.pitch();
  __shared__ unsigned tile[kRows * kPitch];  // a bank an element, narrow ones too

  const unsigned tile_row = blockIdx.x / col_tiles;
  const long long first_col = static_cast<long long>(blockIdx.x % col_tiles) * kCols;
  const long long first_row = static_cast<long long>(tile_row % row_tiles) * kRows;
  const long long matrix = tile_row / row_tiles * (rows * cols);

#pragma unroll
  for (int i = threadIdx.x; i < kRows * kCols; i += TransposeConfig::kThreads) {
    const int row = i / kCols, col = i % kCols;
    if (first_row + row < rows && first_col + col < cols)
      tile[row * kPitch + col] = input[matrix + (first_row + row) * cols + first_col + col];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kCols; i += TransposeConfig::kThreads) {
    const int col = i / kRows, row = i % kRows;
    if (first_row + row < rows && first_col + col < cols)
      output[matrix + (first_col + col) * rows + first_row + row] =
          static_cast<Element>(tile[row * kPitch + col]);
  }
}

}  // namespace convtune
