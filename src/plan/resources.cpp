// See resources.h.
#include "plan/resources.h"

#include "cuda/backend/cuda.h"
#include "cuda/launch/dry_run.h"
#include "cuda/launch/kernel_algorithm.h"

namespace convtune {

std::optional<Resources> resources_of(const Algorithm& algorithm, const Config& config,
                                      const ConvProblem& problem, const DeviceInfo& device,
                                      const std::optional<Target>& target) {
  constexpr double kCompileSeconds = 30;
  if (device.device.kind != Device::Kind::cuda || !cuda::kernel_algorithm(algorithm)) return std::nullopt;
  const cuda::DryRun run = cuda::dry_run(problem, device, {{&algorithm, config}}, 1, kCompileSeconds).front();
  if (!run.failure.empty()) return std::nullopt;
  Resources resources = run.launch;
  resources.occupancy = occupancy(target ? *target : cuda::device_target(device.device),
                                  {resources.threads, resources.registers, resources.smem_bytes});
  return resources;
}

}  // namespace convtune
