// Filters taken out of others on a device, before they are packed.
#pragma once

#include <cstdint>
#include <string>

#include "convtune/device.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/gather_axes.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/launch_plan.h"
#include "problem/forward_parts.h"

namespace convtune::cuda {

// Taps of several axes are one where they lie beside each other.
GatherAxes axes_of(const Gathering& what);

// Has pack() take a part's filter and biases out of the problem's: before it packs, or on the way.
void add_gathering(LaunchPlan& plan, const Computed& part, bool while_packing);
// Has a plan gather before it packs, so that its kernels are those of its algorithm's file alone.
void gather_before_packing(LaunchPlan& plan);

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
