// See gather_step.h.
#include "cuda/launch/gather_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/launch/conversions.h"

namespace convtune::cuda {
namespace {

std::string gathering_kernel(std::int64_t element_bytes) {
  return fmt::format("convtune::gather_numbers<{}>", element_bytes == 2 ? "unsigned short" : "unsigned");
}

std::string axes_text(const GatherAxes& axes) {
  return fmt::format("convtune::GatherAxes{{{}, {{{}}}, {{{}}}, {{{}}}}}", axes.begin,
                     fmt::join(axes.extents, ", "), fmt::join(axes.steps, ", "), fmt::join(axes.whole, ", "));
}

// Tells whether weights are multiplied by zeros outside of x.
bool meets_padding(const ConvProblem& a) {
  const auto pads = {a.pad_front, a.pad_back, a.pad_top, a.pad_bottom, a.pad_left, a.pad_right};
  return a.t * a.r * a.s > 1 || std::ranges::any_of(pads, [](std::int64_t pad) { return pad > 0; });
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

void gather_before_packing(LaunchPlan& plan) {
  constexpr std::int64_t kHalf = 2;  // bytes
  if (!plan.gathers) return;
  for (Step& step : plan.pack) replace(step, Operand::w, Operand::w_gathered);
  if (plan.packed.flagged && !plan.gathers->flags)
    plan.pack.insert(plan.pack.begin(), Clear{{Operand::packed, "float*", plan.packed.flag_at()}, 1});
  plan.pack.insert(plan.pack.begin(), Gathered{Operand::w, Operand::w_gathered, plan.gathers->what, kHalf});
  plan.pack_workspace.push_back(
      {Operand::w_gathered, static_cast<std::size_t>(plan.gathers->what.elements() * kHalf)});
  plan.gathers.reset();
}

void add_gathering(LaunchPlan& plan, const Computed& part, bool while_packing) {
  if (part.weights.elements() == 0) return;
  std::vector<Step> gathered;
  const auto gather = [&](Operand from, Operand to, const Gathering& what, DType type) {
    for (Step& step : plan.pack) replace(step, from, to);
    gathered.emplace_back(Gathered{from, to, what, size_of(type)});
    plan.pack_workspace.push_back({to, static_cast<std::size_t>(what.elements() * size_of(type))});
  };
  if (while_packing) {
    plan.gathers = {part.weights, axes_text(axes_of(part.weights)), meets_padding(part)};
    if (!plan.gathers->flags)
      std::erase_if(plan.pack, [](const Step& step) { return std::holds_alternative<Clear>(step); });
  } else {
    gather(Operand::w, Operand::w_gathered, part.weights, part.dtype.w);
  }
  if (part.bias) gather(Operand::bias, Operand::bias_gathered, part.biases, part.dtype.bias);
  plan.pack.insert(plan.pack.begin(), gathered.begin(), gathered.end());
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
