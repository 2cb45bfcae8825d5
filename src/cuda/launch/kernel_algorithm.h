// What the algorithms with kernels of our own have in common: each says what it takes, which configs are
// worth a try, what one launches (launch_plan.h) and what work that is (time_model.h). Everything else
// follows from these.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/backend.h"
#include "cuda/launch/launch_plan.h"
#include "model/time_model.h"
#include "problem/config.h"

namespace convtune::cuda {

// Named after its kernel's file, cuda/algorithms/NAME/NAME.cuh.
class KernelAlgorithm : public Algorithm {
 public:
  explicit KernelAlgorithm(std::string name) : name_(std::move(name)) {}
  std::string_view name() const final { return name_; }
  Device::Kind device_kind() const final { return Device::Kind::cuda; }
  std::string source_hash() const final;
  // By the model of time, without a spill: no candidate has one.
  std::optional<double> estimated_us(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;
  Support accepts(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;
  void precompile(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;
  std::unique_ptr<Executable> build(const Conv2dProblem&, const DeviceInfo&, const Config&) const final;

  // What build() compiles and launches; a config that it does not accept is refused as there.
  LaunchPlan plan(const Conv2dProblem&, const DeviceInfo&, const Config&) const;
  // What its kernel does, counted. For a config that it accepts.
  TileWork work(const Conv2dProblem&, const DeviceInfo&, const Config&) const;

 protected:
  // Checks that do not depend on the config.
  virtual Support takes(const Conv2dProblem&, const DeviceInfo&) const = 0;
  // For a problem that it takes. May throw, as from_config() does of a config that is not its own.
  virtual Support takes_config(const Conv2dProblem&, const DeviceInfo&, const Config&) const = 0;
  // For a config that it accepts; pure. The input's bytes need not be in the work.
  virtual LaunchPlan launch_plan(const Conv2dProblem&, const DeviceInfo&, const Config&) const = 0;
  virtual TileWork tile_work(const Conv2dProblem&, const DeviceInfo&, const Config&) const = 0;

 private:
  const std::string name_;
};

// The algorithm as one of these, or null: of a vendor, which compiles nothing of ours.
const KernelAlgorithm* kernel_algorithm(const Algorithm& algorithm);

// Refusals that several of them share.
Support takes_f32(const Conv2dProblem& problem, Layout layout);
Support takes_tf32_nchw(const Conv2dProblem& problem);
Support needs_sm80(const DeviceInfo& device);  // or newer
Support needs_sm90(const DeviceInfo& device);  // and no other

// Shared memory that a block may have where needs_sm90() is satisfied.
std::int64_t sm90_smem_per_block();

// A config and what an estimate says that it takes, in whatever unit.
template <class Typed>
struct Ranked {
  double cost;
  Typed config;
};
// The best, best first: at most so many, and none that is estimated at more than `hopeless` times the best.
// Those that are equal stay in their order.
template <class Typed>
std::vector<Typed> best_of(std::vector<Ranked<Typed>> ranked,
                           std::size_t most = std::numeric_limits<std::size_t>::max(),
                           double hopeless = std::numeric_limits<double>::max()) {
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked<Typed>& one, const Ranked<Typed>& other) {
    return one.cost < other.cost;
  });
  std::vector<Typed> best;
  for (const Ranked<Typed>& one : ranked)
    if (best.size() < most && one.cost <= hopeless * ranked.front().cost) best.push_back(one.config);
  return best;
}

// Warps that only the kernel's own roles decide, and 2 to 8 stages in the field `stages`.
StageView stages_alone(std::int64_t warps, std::int64_t stages,
                       std::function<Config(std::int64_t stages)> with_stages);
// The same of a kernel that has its stages in a field of that name.
template <class Kernel>
StageView stages_alone(const Kernel& kernel) {
  return stages_alone(kernel.threads() / 32, kernel.stages, [kernel](std::int64_t stages) {
    Kernel other = kernel;
    other.stages = static_cast<int>(stages);
    return to_config(other);
  });
}

// The plan of a kernel that reads x and packed weights and writes y, beside one that packs. `Kernel` is its
// config (its config.h): flag_at() is the word of the packed weights where packing notes that one
// of them is not finite. `packed_type`: what the packing kernel takes for packed weights.
template <class Kernel>
LaunchPlan plan_of(const std::string& name, const Kernel& kernel, const DeviceInfo& device, Extent3 grid,
                   std::vector<Argument> arguments, std::string_view packed_type = "unsigned*") {
  constexpr unsigned kPackThreads = 256;
  LaunchPlan plan;
  plan.name = name, plan.arch = device.isa;
  plan.configs = {to_cuda(kernel)};
  plan.packed_bytes = static_cast<std::size_t>(kernel.packed_floats()) * sizeof(float);
  plan.pack.emplace_back(Clear{{Operand::packed, "float*", kernel.flag_at()}, 1});
  plan.pack.emplace_back(
      KernelLaunch{LaunchPlan::kPack,
                   {static_cast<unsigned>((kernel.flag_at() + kPackThreads - 1) / kPackThreads)},
                   {kPackThreads},
                   0,
                   {Pointer{Operand::w}, Pointer{Operand::bias}, Pointer{Operand::packed, packed_type}}});
  plan.run.emplace_back(KernelLaunch{LaunchPlan::kRun,
                                     grid,
                                     {static_cast<unsigned>(kernel.threads())},
                                     static_cast<std::size_t>(kernel.smem_bytes()),
                                     std::move(arguments)});
  return plan;
}
// What most of those kernels are given, behind whatever else.
inline const std::vector<Argument> kTensorArguments = {Pointer{Operand::x}, Pointer{Operand::packed},
                                                       Pointer{Operand::y, "float*"}};

// Launch bounds of so many blocks a multiprocessor, and the registers that they leave to a thread.
void hold_resident(LaunchPlan& plan, int blocks);

// A second form for tensors that do not begin at multiples of 16 bytes, where the kernel asks for that.
template <class Kernel>
void add_any_pointer_form(LaunchPlan& plan, Kernel kernel) {
  if (!kernel.asks_alignment()) return;
  kernel.aligned = false;
  plan.config_for_any_pointer = to_cuda(kernel);
}

}  // namespace convtune::cuda
