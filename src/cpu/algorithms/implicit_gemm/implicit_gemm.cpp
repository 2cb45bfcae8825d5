// implicit_gemm: inner layers on the CPU. Vector lanes run over output channels and every product takes one
// broadcast input value, so that rows of any length, strides and both layouts cost the same.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_candidates.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_executable.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/launch/cpu_algorithm.h"

namespace convtune::cpu {

const Algorithm& implicit_gemm() {
  return once([] {
    return CpuAlgorithmOf<ImplicitGemmConfig>({
        .name = "implicit_gemm",
        .supports = implicit_gemm_supports,
        .memory =
            [](const ConvProblem& problem, const ImplicitGemmConfig& config) {
              return ImplicitGemmGeometry(problem, config, config.vector_bits / 32).memory;
            },
        .smallest =
            [](const ConvProblem&, const DeviceInfo& device) {
              return ImplicitGemmConfig{.vector_bits = widest_vector_bits(device), .vectors = 1, .cols = 1};
            },
        .accepts = implicit_gemm_accepts,
        .candidates = implicit_gemm_candidates,
        .cycles = implicit_gemm_cycles,
        .executable =
            [](const ConvProblem& problem, const DeviceInfo& device, const ImplicitGemmConfig& config) {
              return implicit_gemm_executable(problem, config, device.units);
            },
        // A pair of bf16 is two of f32.
        .multiply_adds =
            [](const ConvProblem& problem, const ImplicitGemmConfig& config) {
              const ImplicitGemmGeometry g(problem, config, implicit_gemm_kernels(config.vector_bits)->lanes);
              return static_cast<double>(problem.n * g.output_rows * g.output_cols) *
                     static_cast<double>(g.groups * g.filter_units * g.lanes) *
                     static_cast<double>(g.taps * g.words);
            },
    });
  });
}

}  // namespace convtune::cpu
