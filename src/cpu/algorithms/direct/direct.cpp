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
namespace {

class Direct final : public CpuAlgorithmOf<DirectConfig> {
 public:
  using CpuAlgorithmOf::CpuAlgorithmOf;
  // Tasks that share a tile and its window, and passes over its accumulators: neither changes a tile.
  std::optional<StageView> stage_view(const ConvProblem& problem, const DeviceInfo& info,
                                      const Config& config) const override {
    const auto typed = from_config<DirectConfig>(config);
    const DirectExtents now(problem, typed, direct_kernels(typed.vector_bits)->lanes);
    const auto parts = [](std::int64_t all, std::int64_t count) { return (all + count - 1) / count; };
    StageView view;
    view.parameters = {"tile_tasks", "passes", {2, 4, 8, 16, 32, 64}, {}, "tasks", "pass"};
    for (std::int64_t passes = 1; passes <= 64; ++passes) view.parameters.stages.push_back(passes);
    view.config = {now.filter_tasks, parts(now.taps, now.pass_taps)};
    view.with = [typed, parts, taps = now.taps, blocks = now.filter_blocks,
                 original = view.config](const StageConfig& wanted) {
      DirectConfig other = typed;
      if (wanted.stages != original.stages)
        other.taps = wanted.stages == 1 ? 0 : static_cast<int>(parts(taps, wanted.stages));
      if (wanted.warps != original.warps)
        other.filters = static_cast<int>(parts(blocks, wanted.warps)) * typed.channels;
      return to_config(other);
    };
    view.warps = suggested_sharers(now.filter_tasks, now.tasks, info.units, view.parameters);
    return view;
  }
};

}  // namespace

const Algorithm& direct() {
  return once([] {
    return Direct({
        .name = "direct",
        .supports = direct_supports,
        .accepts = direct_accepts,
        .candidates = direct_candidates,
        .cycles = direct_cycles,
        .executable =
            [](const ConvProblem& problem, const DeviceInfo& device, const DirectConfig& config) {
              return direct_executable(problem, config, device.units, l2_bytes_of(device));
            },
        .multiply_adds =
            [](const ConvProblem& problem, const DirectConfig& config) {
              return DirectExtents(problem, config, direct_kernels(config.vector_bits)->lanes)
                  .issued_multiply_adds;
            },
    });
  });
}

}  // namespace convtune::cpu
