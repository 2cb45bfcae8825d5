// amx: first layers, convolutions of few input channels, of bf16 tensors on processors with AMX, whose tiles
// multiply 16 times as much a cycle as vectors of f32. Both layouts, any filter (amx_geometry.h).
#include "base/fork_gate.h"
#include "cpu/algorithms/amx/amx_candidates.h"
#include "cpu/algorithms/amx/amx_executable.h"
#include "cpu/algorithms/amx/amx_kernels.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/launch/cpu_algorithm.h"

namespace convtune::cpu {

CpuAlgorithmParts<AmxConfig> amx_parts() {
  return {
      .name = "amx",
      .supports =
          [](const ConvProblem& problem, const DeviceInfo& device) {
            if (Support support = amx_takes(problem, device); !support) return support;
            return amx_missing().empty() ? Support::yes() : Support::no(amx_missing());
          },
      .memory = [](const ConvProblem& problem,
                   const AmxConfig& config) { return AmxExtents(problem, config).memory; },
      .smallest = [](const ConvProblem&,
                     const DeviceInfo&) { return AmxConfig{.filter_tiles = 1, .cols = 1}; },
      .accepts = amx_accepts,
      .candidates = amx_candidates,
      .cycles = amx_cycles,
      .executable =
          [](const ConvProblem& problem, const DeviceInfo& device, const AmxConfig& config) {
            return amx_executable(problem, config, device.units, widest_vector_bits(device), amx_kernels());
          },
      // Tiles multiply 16 times as much as vectors of f32 in the same time.
      .multiply_adds = [](const ConvProblem& problem,
                          const AmxConfig&) { return problem.flops() / (2 * 16); },
  };
}

const Algorithm& amx() {
  return once([] { return CpuAlgorithmOf<AmxConfig>(amx_parts()); });
}

}  // namespace convtune::cpu
