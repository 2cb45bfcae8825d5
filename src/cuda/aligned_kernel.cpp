// The form for any pointer, once.
#include "cuda/aligned_kernel.h"

#include <utility>

namespace convtune::cuda {

AlignedKernel::AlignedKernel(int device, const CompiledModule& module, const std::string& name,
                             std::size_t dynamic_smem_bytes, std::function<CompileJob()> any)
    : device_(device),
      dynamic_smem_bytes_(dynamic_smem_bytes),
      aligned_(device, module, name, dynamic_smem_bytes),
      any_job_(std::move(any)) {}

const Kernel& AlignedKernel::any() const {
  const std::lock_guard lock(mutex_);
  if (!any_) {
    const CompileJob job = any_job_();
    any_.emplace(device_, compile(job), job.kernels.front(), dynamic_smem_bytes_, Kernel::Loaded::in_a_run);
  }
  return *any_;
}

}  // namespace convtune::cuda
