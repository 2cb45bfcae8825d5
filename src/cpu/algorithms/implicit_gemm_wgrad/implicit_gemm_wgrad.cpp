// implicit_gemm_wgrad: the gradient of weights on the CPU, of any filter, groups and both layouts. Sums are
// in fp32, added in an order that the config says: the same bits for any number of threads.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_candidates.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_executable.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.h"
#include "cpu/launch/cpu_algorithm.h"

namespace convtune::cpu {

const Algorithm& implicit_gemm_wgrad() {
  return once([] {
    return CpuAlgorithmOf<WgradConfig>({
        .name = "implicit_gemm_wgrad",
        .supports = wgrad_supports,
        .memory = [](const ConvProblem& problem,
                     const WgradConfig& config) { return wgrad_geometry(problem, config).memory; },
        .smallest = [](const ConvProblem&,
                       const DeviceInfo&) { return WgradConfig{.vector_bits = 128, .filters = 1}; },
        .accepts = wgrad_accepts,
        .candidates = wgrad_candidates,
        .cycles = wgrad_cycles,
        .executable =
            [](const ConvProblem& problem, const DeviceInfo& device, const WgradConfig& config) {
              return wgrad_executable(problem, config, device.units);
            },
    });
  });
}

}  // namespace convtune::cpu
