// See gather_step.h.
#include "cuda/launch/gather_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/tile/arithmetic.h"

namespace convtune::cuda {
namespace {

std::string gathering_kernel(std::int64_t element_bytes) {
  return fmt::format("convtune::gather_numbers<{}>", element_bytes == 2 ? "unsigned short" : "unsigned");
}

GatherAxes axes_of(const Gathering& what) {
  static_assert(GatherAxes::kAxes == Gathering::kAxes && GatherAxes::kResidues == Gathering::kResidues &&
                GatherAxes::kTaps == Gathering::kTaps);
  GatherAxes axes{.begin = what.begin, .elements = what.elements()};
  for (std::size_t i = 0; i < Gathering::kAxes; ++i)
    axes.extents[i] = what.extents[i], axes.steps[i] = what.steps[i];
  std::ranges::copy(what.whole, axes.whole);
  return axes;
}

}  // namespace

CompileJob Gather::job(std::int64_t element_bytes, const std::string& arch) {
  return kernel_job(kFile, gathering_kernel(element_bytes), arch);
}

Gather::Gather(const DeviceInfo& device, const Gathering& what, std::int64_t element_bytes)
    : axes_(axes_of(what)),
      kernel_(device.device.index, compile(job(element_bytes, device.isa)), gathering_kernel(element_bytes),
              {.waits_for_earlier_grids = true}) {}

void Gather::run(const void* from, void* to, Stream stream) const {
  kernel_.launch({static_cast<unsigned>(ceil_div(axes_.elements, GatherAxes::kThreads))},
                 {GatherAxes::kThreads}, 0, stream, from, to, axes_);
}

}  // namespace convtune::cuda
