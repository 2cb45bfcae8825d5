// See transpose.h.
#include "cuda/launch/transpose.h"

#include <fmt/format.h>

#include <limits>

#include "convtune/error.h"
#include "cuda/compile/compiler.h"
#include "cuda/device/driver.h"
#include "cuda/launch/transpose_tile.h"

namespace convtune::cuda {

Transpose::Transpose(const DeviceInfo& device, std::int64_t batch, std::int64_t rows, std::int64_t cols,
                     std::int64_t element_bytes)
    : rows_(rows), cols_(cols), bytes_(static_cast<std::size_t>(batch * rows * cols * element_bytes)) {
  if (rows == 1 || cols == 1) return;
  const TransposeConfig config = TransposeConfig::for_matrix(rows, cols);
  const std::int64_t row_tiles = (rows + config.tile_rows - 1) / config.tile_rows;
  const std::int64_t col_tiles = (cols + config.tile_cols - 1) / config.tile_cols;
  constexpr std::int64_t kMostBlocks = std::numeric_limits<int>::max();
  if (const std::int64_t blocks = batch * row_tiles * col_tiles; blocks > kMostBlocks)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("transposing {} matrices of {} by {} takes {} blocks, and a launch has at most {}", batch,
                    rows, cols, blocks, kMostBlocks));
  row_tiles_ = static_cast<unsigned>(row_tiles);
  col_tiles_ = static_cast<unsigned>(col_tiles);
  blocks_ = static_cast<unsigned>(batch) * row_tiles_ * col_tiles_;
  const std::string name =
      fmt::format("convtune::transpose<convtune::TransposeConfig{{.tile_rows={},.tile_cols={}}},{}>",
                  config.tile_rows, config.tile_cols, element_bytes == 2 ? "unsigned short" : "unsigned");
  kernel_.emplace(device.device.index,
                  compile(kernel_job("cuda/launch/transpose_tile.cuh", name, device.isa)), name);
}

void Transpose::run(const void* input, void* output, Stream stream) const {
  if (kernel_)
    kernel_->launch({blocks_}, {TransposeConfig::kThreads}, 0, stream, input, output, rows_, cols_,
                    row_tiles_, col_tiles_);
  else
    check(driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(output),
                                     reinterpret_cast<CUdeviceptr>(input), bytes_,
                                     static_cast<CUstream>(stream)),
          "copying {} bytes", bytes_);
}

}  // namespace convtune::cuda
