// See kernel_executable.h. A kernel that looks at its pointers while it runs has every load and store twice,
// and a compiler needs half as long again: so a plan's kernel takes tensors to begin at multiples of 16
// bytes, which is where allocators put them, and another one is compiled when the first tensor comes that
// does not.
#include "cuda/launch/kernel_executable.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <map>
#include <utility>

#include "base/fork_gate.h"
#include "cuda/launch/gpu_share.h"
#include "cuda/launch/tensor_map.h"

namespace convtune::cuda {
namespace {

constexpr std::size_t kMostArguments = 8, kMostTensorMaps = 20;

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// For any stream and device: what runs one after the other is launched one after the other.
int next_turn() {
  static std::atomic<unsigned> launches = 0;
  return static_cast<int>(launches++ % 2);
}

}  // namespace

struct KernelExecutable::Operands {
  std::array<const void*, kOperands> addresses{};
  bool dw_last = false;

  const void*& operator[](Operand operand) { return addresses[static_cast<std::size_t>(operand)]; }
  const void* at(const Pointer& pointer) const {
    const void* address = addresses[static_cast<std::size_t>(pointer.operand)];
    return address ? static_cast<const float*>(address) + pointer.offset : nullptr;
  }
};

// Loaded once in a process and device where they serve every problem, once for all plans of a time where they
// serve every batch, else once a plan.
struct KernelExecutable::Kernels {
  Kernels(const LaunchPlan& plan, int index, const CompiledPlan& made)
      : device(index), runs(plan, device, made.job, made.module, Kernel::Loaded::at_build) {
    if (!plan.weights_lie)
      pack.emplace(runs.run, made.module, made.job.kernels[LaunchPlan::kPack],
                   Kernel::Options{.waits_for_earlier_grids = plan.gathers.has_value()});
  }

  // Kernels that a run launches.
  struct Runs {
    Runs(const LaunchPlan& plan, int device, const CompileJob& job, const CompiledModule& module,
         Kernel::Loaded loaded)
        : run(device, module, job.kernels[LaunchPlan::kRun],
              {.dynamic_smem_bytes = plan.kernel_launch().dynamic_smem_bytes,
               .loaded = loaded,
               .waits_for_earlier_grids = true}) {
      if (job.kernels.size() <= LaunchPlan::kAddUp) return;
      Kernel::Options options{.loaded = loaded, .waits_for_earlier_grids = true};
      for (const Step& step : plan.run)
        if (const auto* launch = std::get_if<KernelLaunch>(&step);
            launch && launch->kernel == LaunchPlan::kAddUp)
          options.dynamic_smem_bytes = launch->dynamic_smem_bytes;
      add_up.emplace(run, module, job.kernels[LaunchPlan::kAddUp], options);
    }
    const Kernel& at(std::size_t kernel) const { return kernel == LaunchPlan::kAddUp ? *add_up : run; }

    const Kernel run;
    std::optional<Kernel> add_up;
  };
  const Runs& for_any_pointer(const LaunchPlan& plan) const {
    const std::lock_guard lock(mutex);
    if (!any) {
      const CompileJob job = compile_job(plan, plan.config_for_any_pointer);
      any.emplace(plan, device, job, compile(job), Kernel::Loaded::in_a_run);
    }
    return *any;
  }

  const int device;
  const Runs runs;
  std::optional<Kernel> pack;  // none where weights lie as they are read
  mutable Mutex mutex;
  mutable std::optional<Runs> any;
};

std::shared_ptr<const KernelExecutable::Kernels> KernelExecutable::load(const LaunchPlan& plan,
                                                                        const DeviceInfo& device) {
  const int index = device.device.index;
  const auto compile_and_load = [&] { return std::make_shared<const Kernels>(plan, index, compile(plan)); };
  if (!plan.serves_every_problem && plan.most_images == 0) return compile_and_load();
  struct Slot {
    Mutex mutex;
    std::shared_ptr<const Kernels> kept;  // serves every problem
    std::weak_ptr<const Kernels> shared;
  };
  static constinit Mutex mutex;
  // Never destroyed: at exit the driver may be gone.
  auto& slots = *once([] { return new std::map<std::string, Slot>; });
  Slot* slot = nullptr;
  const CompileJob job = compile_job(plan, plan.configs.front());
  const std::string name = fmt::format("{} {} {}", index, job.kernels[LaunchPlan::kRun], job.kernels.back());
  {
    const std::lock_guard lock(mutex);
    slot = &slots[name];
  }
  const std::lock_guard lock(slot->mutex);  // others compile meanwhile
  std::shared_ptr<const Kernels> kernels = slot->shared.lock();
  if (!kernels) slot->shared = kernels = compile_and_load();
  if (plan.serves_every_problem) slot->kept = kernels;
  return kernels;
}

KernelExecutable::KernelExecutable(LaunchPlan plan, const DeviceInfo& device)
    : plan_(std::move(plan)),
      device_(device.device.index),
      multiprocessors_(device.units),
      kernels_(load(plan_, device)),
      maps_([device = device_](const void* data, const TensorMapLayout& layout, TensorMap& map) {
        return make_tensor_map(device, data, layout, map);
      }),
      workspace_(device_) {
  for (const Step& step : plan_.run) {
    if (const auto* conversion = std::get_if<Conversion>(&step))
      transposes_.emplace_back(device, conversion->what);
    if (const auto* bare = std::get_if<Bare>(&step)) bares_.emplace_back(device, bare->what);
  }
  for (const Step& step : plan_.pack)
    if (const auto* gathered = std::get_if<Gathered>(&step))
      gathers_.emplace_back(device, gathered->what, gathered->element_bytes);
  for (const LaunchPlan& part : plan_.more) more_.push_back(std::make_unique<KernelExecutable>(part, device));
  const DeviceScope scope(device_);
  workspace_.at_least(plan_.workspace_bytes(), nullptr);  // if memory is short this is better than a run
}

KernelExecutable::~KernelExecutable() = default;

void KernelExecutable::pack(const void* w, const void* bias, void* packed, Stream stream) const {
  Operands operands;
  operands[Operand::w] = w, operands[Operand::bias] = bias, operands[Operand::packed] = packed;
  if (plan_.pack_workspace.empty()) {
    take(plan_.pack, operands, stream);
  } else {
    const DeviceScope scope(device_);
    const Workspace::Hold hold = workspace_.at_least(plan_.pack_workspace_bytes(), stream);
    place(plan_.pack_workspace, hold.memory, operands);
    take(plan_.pack, operands, stream);
  }
  if (plan_.weights_lie) return;
  for_more([&](const KernelExecutable& part, std::size_t offset) {
    part.pack(w, bias, static_cast<unsigned char*>(packed) + offset, stream);
  });
}

void KernelExecutable::run(const Tensors& tensors, const void* packed, Stream stream) const {
  Operands operands;
  operands[Operand::x] = tensors.x, operands[Operand::y] = tensors.y, operands[Operand::packed] = packed;
  operands[Operand::residual] = tensors.residual, operands[Operand::dy] = tensors.dy;
  operands[Operand::dx] = tensors.dx, operands[Operand::dw] = tensors.dw;
  operands[Operand::dbias] = tensors.dbias, operands[Operand::cache] = tensors.cache;
  operands.dw_last = tensors.dw_last;
  if (plan_.workspace.empty()) {
    take(plan_.run, operands, stream);
  } else {
    const DeviceScope scope(device_);
    const Workspace::Hold hold = workspace_.at_least(plan_.workspace_bytes(), stream);
    place(plan_.workspace, hold.memory, operands);
    take(plan_.run, operands, stream);
  }
  for_more([&](const KernelExecutable& part, std::size_t offset) {
    part.run(tensors, static_cast<const unsigned char*>(packed) + offset, stream);
  });
}

void KernelExecutable::place(const std::vector<WorkspacePart>& parts, const void* memory,
                             Operands& operands) {
  const auto* at = static_cast<const unsigned char*>(memory);
  for (const WorkspacePart& part : parts) {
    operands[part.operand] = at;
    at += in_lines(part.bytes);
  }
}

void KernelExecutable::take(const std::vector<Step>& steps, const Operands& operands, Stream stream) const {
  std::size_t conversions = 0, gathered = 0, bares = 0;
  for (const Step& step : steps) {
    if (const auto* clear = std::get_if<Clear>(&step))
      fill(device_, const_cast<void*>(operands.at(clear->begin)), 0, clear->words, stream);
    else if (const auto* conversion = std::get_if<Conversion>(&step))
      transposes_[conversions++].run(operands.at({conversion->from}),
                                     const_cast<void*>(operands.at({conversion->to})), stream);
    else if (const auto* gathering = std::get_if<Gathered>(&step))
      gathers_[gathered++].run(operands.at({gathering->from}),
                               const_cast<void*>(operands.at({gathering->to})), stream);
    else if (const auto* bare = std::get_if<Bare>(&step))
      bares_[bares++].run(bare->bias ? operands.at(*bare->bias) : nullptr, operands.at({bare->residual}),
                          const_cast<void*>(operands.at({bare->to})), stream);
    else
      launch(std::get<KernelLaunch>(step), operands, stream);
  }
}

void KernelExecutable::launch(const KernelLaunch& step, const Operands& operands, Stream stream) const {
  // Values first, since the driver is given their addresses.
  std::array<const void*, kMostArguments> pointers{}, addresses{};
  std::array<int, kMostArguments> numbers{};
  std::optional<std::array<TensorMap, kMostTensorMaps>> maps;
  std::array<bool, kMostTensorMaps> usable_groups{};
  const void* const residual = operands.at({Operand::residual});
  const bool overwrites = residual != nullptr &&
                          (residual == operands.at({Operand::y}) || residual == operands.at({Operand::dx}));
  bool aligned = !plan_.stores_before_repair || !overwrites;
  std::size_t count = 0;
  for (const Argument& argument : step.arguments) {
    const std::size_t i = count++;
    if (const auto* pointer = std::get_if<Pointer>(&argument)) {
      pointers[i] = operands.at(*pointer);
      aligned = aligned && is_aligned(pointers[i]);
      addresses[i] = &pointers[i];
    } else if (const auto* some = std::get_if<TensorMaps>(&argument)) {
      maps.emplace();
      std::size_t place = 0, group_index = 0;
      for (const TensorMapGroup& group : some->groups) {
        const void* const data = operands.at({group.operand});
        const bool can =
            !group.maps.empty() && is_aligned(data) && maps_.write(group, data, &maps->at(place));
        // A plan with a kernel for any pointer has one that asks for its maps.
        aligned = aligned && (can || group.maps.empty());
        usable_groups[group_index++] = can;
        place += std::max<std::size_t>(group.places, 1);
      }
      addresses[i] = maps->data();
    } else if (const auto* of_maps = std::get_if<TensorMapsUsable>(&argument)) {
      numbers[i] = usable_groups[of_maps->group];
      addresses[i] = &numbers[i];
    } else if (std::holds_alternative<Turn>(argument)) {
      numbers[i] = next_turn();
      addresses[i] = &numbers[i];
    } else if (std::holds_alternative<DwLast>(argument)) {
      numbers[i] = operands.dw_last ? 1 : 0;
      addresses[i] = &numbers[i];
    } else {
      addresses[i] = std::visit([](const auto& value) -> const void* { return &value; }, argument);
    }
  }
  const bool packs = step.kernel == LaunchPlan::kPack;
  const bool any = !packs && !aligned && !plan_.config_for_any_pointer.empty();
  const Kernel& kernel = packs ? *kernels_->pack
                         : any ? kernels_->for_any_pointer(plan_).at(step.kernel)
                               : kernels_->runs.at(step.kernel);
  Extent3 grid = step.grid;
  if (step.unit > 0) grid.x = blocks_of_share(grid.x, step.unit, multiprocessors_);
  kernel.launch_with(grid, step.block, step.dynamic_smem_bytes, stream, addresses.data());
}

}  // namespace convtune::cuda
