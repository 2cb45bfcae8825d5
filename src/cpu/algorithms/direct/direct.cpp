// direct: first layers on the CPU, of f32 or bf16 tensors. NCHW in and out with no layout change of the
// activations in memory: a tile's input window is staged in the core's cache (direct_geometry.h) and
// multiplied there.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct/direct_candidates.h"
#include "cpu/algorithms/direct/direct_executable.h"
#include "cpu/algorithms/direct/direct_geometry.h"
#include "cpu/base/caches.h"
#include "cpu/launch/cpu_algorithm.h"
#include "cpu/tile/direct_kernels.h"

namespace convtune::cpu {

const Algorithm& direct() {
  return once([] {
    return CpuAlgorithmOf<DirectConfig>({
        .name = "direct",
        .supports = direct_supports,
        .memory =
            [](const ConvProblem& problem, const DirectConfig& config) {
              return DirectExtents(problem, config, config.vector_bits / 32).memory;
            },
        .smallest = direct_smallest,
        .accepts = direct_accepts,
        .candidates = direct_candidates,
        .cycles = direct_cycles,
        .executable = [](const ConvProblem& problem, const DeviceInfo& device,
                         const DirectConfig& config) { return direct_executable(problem, config, device); },
        .multiply_adds =
            [](const ConvProblem& problem, const DirectConfig& config) {
              return DirectExtents(problem, config, direct_kernels(config.vector_bits)->lanes)
                  .issued_multiply_adds;
            },
    });
  });
}

}  // namespace convtune::cpu
