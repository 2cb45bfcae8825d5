// Batched transposition on a device: between NCHW and NHWC, and of weights the same way.
#pragma once

#include <optional>

#include "convtune/device.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/transposition.h"

namespace convtune::cuda {

// Made for one shape, safe to run from any thread.
class Transpose {
 public:
  // Compiles a kernel where anything moves; throws Error{unsupported} where a launch cannot have as many
  // blocks.
  Transpose(const DeviceInfo& device, const Transposition& what);

  bool is_copy() const { return what_.is_copy(); }

  // On the stream; the device must be current (DeviceScope). Pointers need the alignment of an element only.
  void run(const void* input, void* output, Stream stream) const;

 private:
  Transposition what_;
  std::optional<Kernel> kernel_;
};

}  // namespace convtune::cuda
