// winograd: convolutions with fewer products than the direct form has (winograd_transform.h). What runs 3x3
// filters is winograd_channels_first.cpp or winograd_channels_last.cpp, others winograd_decomposed.cpp; what
// is worth trying winograd_candidates.cpp.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd/winograd_candidates.h"
#include "cpu/algorithms/winograd/winograd_executable.h"
#include "cpu/launch/cpu_algorithm.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/winograd/winograd_precision.h"

namespace convtune::cpu {

const Algorithm& winograd() {
  return once([] {
    return CpuAlgorithmOf<WinogradConfig>({
        .name = "winograd",
        .supports = winograd_within_precision,
        .memory =
            [](const ConvProblem& problem, const WinogradConfig& config) {
              return WinogradGeometry(problem, config, config.vector_bits / 32).memory;
            },
        .smallest = winograd_smallest,
        .accepts = winograd_accepts,
        .candidates = winograd_candidates,
        .cycles = winograd_cycles,
        .executable =
            [](const ConvProblem& problem, const DeviceInfo& device, const WinogradConfig& config) {
              if (problem.has_depth()) return winograd_frames(problem, config, device.units);
              if (is_decomposed(problem)) return winograd_decomposed(problem, config, device.units);
              return problem.layout == Layout::nchw ? winograd_channels_first(problem, config, device.units)
                                                    : winograd_channels_last(problem, config, device.units);
            },
        .multiply_adds =
            [](const ConvProblem& problem, const WinogradConfig& config) {
              return WinogradGeometry(problem, config, direct_kernels(config.vector_bits)->lanes)
                  .issued_multiply_adds;
            },
        .reads_frames = winograd_reads_frames,
    });
  });
}

}  // namespace convtune::cpu
