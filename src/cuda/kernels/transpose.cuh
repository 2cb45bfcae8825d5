// Transposes a batch of float matrices: the layout conversions that are counted with a vendor's
// channels-last answer. One block a tile; neighbouring threads read along a row and write along a column.
#include "transpose.h"

namespace convtune {

template <TransposeConfig config>
__global__ void __launch_bounds__(TransposeConfig::threads)
    transpose(const float* __restrict__ input, float* __restrict__ output) {
  constexpr int kRows = config.tile_rows(), kCols = config.tile_cols(), kPitch = config.pitch();
  __shared__ float tile[kRows * kPitch];

  long long index = blockIdx.x;
  const long long first_col = index % config.col_tiles() * kCols;
  index /= config.col_tiles();
  const long long first_row = index % config.row_tiles() * kRows;
  const long long matrix = index / config.row_tiles() * (config.rows * config.cols);

#pragma unroll
  for (int i = threadIdx.x; i < kRows * kCols; i += TransposeConfig::threads) {
    const int row = i / kCols, col = i % kCols;
    if (first_row + row < config.rows && first_col + col < config.cols)
      tile[row * kPitch + col] = input[matrix + (first_row + row) * config.cols + first_col + col];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kCols; i += TransposeConfig::threads) {
    const int col = i / kRows, row = i % kRows;
    if (first_row + row < config.rows && first_col + col < config.cols)
      output[matrix + (first_col + col) * config.rows + first_row + row] = tile[row * kPitch + col];
  }
}

}  // namespace convtune
