// See transpose.h.
#include "cuda/launch/transpose.h"

#include <fmt/format.h>

#include "convtune/error.h"
#include "cuda/device/driver.h"
#include "cuda/launch/transpose_tile.h"

namespace convtune::cuda {

static_assert(TransposeConfig::kThreads == WideTranspose<2, 64>::kThreads);

Transpose::Transpose(const DeviceInfo& device, const Transposition& what) : what_(what) {
  if (is_copy()) return;
  if (what.blocks() > Transposition::kMostBlocks)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("transposing {} matrices of {} by {} takes {} blocks, and a launch has at most {}",
                    what.batch, what.rows, what.cols, what.blocks(), Transposition::kMostBlocks));
  kernel_.emplace(device.device.index, compile(what.job(device.isa)), what.kernel(),
                  Kernel::Options{.waits_for_earlier_grids = true});
}

void Transpose::run(const void* input, void* output, Stream stream) const {
  if (kernel_)
    // As the kernel takes them.
    kernel_->launch({static_cast<unsigned>(what_.blocks())}, {TransposeConfig::kThreads}, 0, stream, input,
                    output, static_cast<long long>(what_.rows), static_cast<long long>(what_.cols),
                    static_cast<unsigned>(what_.row_tiles()), static_cast<unsigned>(what_.col_tiles()));
  else
    check(driver().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(output),
                                     reinterpret_cast<CUdeviceptr>(input), what_.bytes(),
                                     static_cast<CUstream>(stream)),
          "copying {} bytes", what_.bytes());
}

}  // namespace convtune::cuda
