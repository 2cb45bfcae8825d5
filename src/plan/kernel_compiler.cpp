// See kernel_compiler.h.
#include "plan/kernel_compiler.h"

#include "cuda/compile/compiler.h"
#include "cuda/launch/kernel_algorithm.h"

namespace convtune {

std::string kernel_compiler() {
  return cuda::nvrtc_build();
}

void require_kernel_compiler(const std::string& what) {
  if (!cuda::has_nvrtc())
    throw Error(ErrorKind::unsupported, what + ": NVRTC is not found (" + cuda::describe_nvrtc() + ")");
}

std::string shared_kernel(const Algorithm& algorithm, const ConvProblem& problem, const DeviceInfo& device,
                          const Config& config) {
  const auto* const kernels = cuda::kernel_algorithm(algorithm);
  if (!kernels) return {};
  const cuda::LaunchPlan plan = kernels->plan(problem, device, config);
  return plan.serves_every_problem ? plan.name + plan.configs.front() : std::string();
}

}  // namespace convtune
