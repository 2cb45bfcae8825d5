// Filters taken out of others on a device, before they are packed.
#pragma once

#include "convtune/device.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/gather_axes.h"
#include "cuda/launch/kernel.h"
#include "problem/forward_parts.h"

namespace convtune::cuda {

// Taps of several axes are one where they lie beside each other.
GatherAxes axes_of(const Gathering& what);

// Made for one gathering of elements of 2 or 4 bytes, safe to run from any thread.
class Gather {
 public:
  static constexpr const char* kFile = "cuda/launch/gather_numbers.cuh";

  Gather(const DeviceInfo& device, const Gathering& what, std::int64_t element_bytes);
  static CompileJob job(std::int64_t element_bytes, const std::string& arch);

  // On the stream; the device must be current (DeviceScope). `to` begins at a multiple of
  // 16 bytes, `from` at one of an element.
  void run(const void* from, void* to, Stream stream) const;

 private:
  GatherAxes axes_;
  Kernel kernel_;
};

}  // namespace convtune::cuda
