// Batched transposition on a device: between NCHW and NHWC, and of weights the same way.
#pragma once

#include <cstdint>
#include <optional>

#include "convtune/device.h"
#include "cuda/launch/kernel.h"

namespace convtune::cuda {

// Made for one shape, safe to run from any thread.
class Transpose {
 public:
  // `batch` matrices of elements of 2 or 4 bytes, [rows][cols] to [cols][rows]. Compiles a kernel where
  // anything moves; throws Error{unsupported} where a launch cannot have as many blocks.
  Transpose(const DeviceInfo& device, std::int64_t batch, std::int64_t rows, std::int64_t cols,
            std::int64_t element_bytes);

  // Output and input are the same sequence of numbers: one row, or one column.
  bool is_copy() const { return !kernel_; }

  // On the stream; the device must be current (DeviceScope). Pointers need the alignment of an element only.
  void run(const void* input, void* output, Stream stream) const;

 private:
  long long rows_, cols_;  // as the kernel takes them
  std::size_t bytes_;
  unsigned row_tiles_ = 0, col_tiles_ = 0, blocks_ = 0;
  std::optional<Kernel> kernel_;
};

}  // namespace convtune::cuda
