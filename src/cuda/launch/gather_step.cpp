// See gather_step.h.
#include "cuda/launch/gather_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace convtune::cuda {
namespace {

std::string gathering_kernel(std::int64_t element_bytes) {
  return fmt::format("convtune::gather_numbers<{}>", element_bytes == 2 ? "unsigned short" : "unsigned");
}

}  // namespace

GatherAxes axes_of(const Gathering& what) {
  static_assert(GatherAxes::kAxes == Gathering::kAxes && GatherAxes::kResidues == Gathering::kResidues &&
                GatherAxes::kTaps == Gathering::kTaps);
  GatherAxes axes{.begin = what.begin};
  const auto count = [](std::int64_t of) { return static_cast<unsigned>(of); };
  std::ranges::transform(what.extents, axes.extents, count);
  std::ranges::copy(what.steps, axes.steps);
  std::ranges::transform(what.whole, axes.whole, count);
  const bool lacks_none = std::ranges::all_of(what.whole, [](std::int64_t whole) { return whole == 0; });
  for (int axis = GatherAxes::kTaps; lacks_none && axis + 1 < GatherAxes::kAxes; ++axis)
    if (axes.steps[axis] == axes.steps[axis + 1] * axes.extents[axis + 1])
      axes.extents[axis + 1] *= std::exchange(axes.extents[axis], 1);
  return axes;
}

CompileJob Gather::job(std::int64_t element_bytes, const std::string& arch) {
  return kernel_job(kFile, gathering_kernel(element_bytes), arch);
}

Gather::Gather(const DeviceInfo& device, const Gathering& what, std::int64_t element_bytes)
    : axes_(axes_of(what)),
      kernel_(device.device.index, compile(job(element_bytes, device.isa)), gathering_kernel(element_bytes),
              {.waits_for_earlier_grids = true}) {}

void Gather::run(const void* from, void* to, Stream stream) const {
  kernel_.launch({axes_.blocks()}, {GatherAxes::kThreads}, 0, stream, from, to, axes_);
}

}  // namespace convtune::cuda
