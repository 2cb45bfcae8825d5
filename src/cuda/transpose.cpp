// See transpose.h.
#include "cuda/transpose.h"

#include <fmt/format.h>

#include <limits>

#include "convtune/error.h"
#include "cuda/compiler.h"
#include "cuda/driver.h"
#include "cuda/kernels/transpose.h"

namespace convtune::cuda {

Transpose::Transpose(const DeviceInfo& device, std::int64_t batch, std::int64_t rows, std::int64_t cols)
    : bytes_(static_cast<std::size_t>(batch * rows * cols) * sizeof(float)) {
  if (rows == 1 || cols == 1) return;
  const TransposeConfig config{rows, cols};
  const std::int64_t blocks = batch * config.row_tiles() * config.col_tiles();
  if (blocks > std::numeric_limits<int>::max())
    throw Error(
        ErrorKind::unsupported,
        fmt::format("transposing {} matrices of {} by {} takes {} blocks, and a launch has at most {}", batch,
                    rows, cols, blocks, std::numeric_limits<int>::max()));
  blocks_ = static_cast<unsigned>(blocks);
  const std::string name =
      fmt::format("convtune::transpose<convtune::TransposeConfig{{.rows={},.cols={}}}>", rows, cols);
  kernel_.emplace(device.device.index, compile(kernel_job("transpose.cuh", name, device.isa)), name);
}

void Transpose::run(const void* input, void* output, Stream stream) const {
  if (kernel_)
    kernel_->launch({blocks_}, {TransposeConfig::threads}, 0, stream, static_cast<const float*>(input),
                    static_cast<float*>(output));
  else
    check(driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(output),
                                     reinterpret_cast<CUdeviceptr>(input), bytes_,
                                     static_cast<CUstream>(stream)),
          "copying {} bytes", bytes_);
}

}  // namespace convtune::cuda
