// The one executable of all kernels of ours: compiles what a launch plan says, binds pointers, launches.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "contract/backend.h"
#include "cuda/device/workspace.h"
#include "cuda/launch/bare_step.h"
#include "cuda/launch/gather_step.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/launch_plan.h"
#include "cuda/launch/tensor_map.h"
#include "cuda/launch/transpose.h"

namespace convtune::cuda {

class KernelExecutable final : public Executable {
 public:
  // Throws what compile() and Kernel throw.
  KernelExecutable(LaunchPlan plan, const DeviceInfo& device);
  ~KernelExecutable() override;

  std::size_t packed_bytes() const override { return plan_.all_packed_bytes(); }
  std::optional<std::size_t> workspace_bytes() const override { return plan_.workspace_bytes(); }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override;
  // From any thread, also while a stream is being captured. Throws what compile() throws where a tensor
  // begins at no multiple of 16 bytes and the kernel for such tensors cannot be had.
  void run(const Tensors& tensors, const void* packed, Stream stream) const override;
  bool can_lay_dw_last() const override { return plan_.can_lay_dw_last(); }

 private:
  struct Kernels;
  struct Operands;
  static std::shared_ptr<const Kernels> load(const LaunchPlan& plan, const DeviceInfo& device);
  void take(const std::vector<Step>& steps, const Operands& operands, Stream stream) const;
  static void place(const std::vector<WorkspacePart>& parts, const void* memory, Operands& operands);
  // f(part, offset of its packed weights in bytes) for each further part.
  template <class F>
  void for_more(const F& f) const {
    std::size_t offset = plan_.weights_lie ? 0 : in_lines(plan_.packed_bytes());
    for (const auto& part : more_) {
      f(*part, offset);
      if (!plan_.weights_lie) offset += in_lines(part->packed_bytes());
    }
  }
  void launch(const KernelLaunch& step, const Operands& operands, Stream stream) const;

  const LaunchPlan plan_;
  const int device_, multiprocessors_;
  const std::shared_ptr<const Kernels> kernels_;
  std::vector<Transpose> transposes_;                    // for the plan's conversions, in their order
  std::vector<Gather> gathers_;                          // for what it gathers before it packs, in order
  std::vector<StoreBare> bares_;                         // for elements that no tap meets, in their order
  std::vector<std::unique_ptr<KernelExecutable>> more_;  // for further parts
  mutable MadeTensorMaps maps_;
  mutable Workspace workspace_;
};

}  // namespace convtune::cuda
