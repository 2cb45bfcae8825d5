// direct: first layers on the CPU, of f32 or bf16 tensors. NCHW in and out with no layout change of the
// activations in memory: a tile's input window is staged in the core's cache (direct_geometry.h) and
// multiplied there.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct/direct_candidates.h"
#include "cpu/algorithms/direct/direct_executable.h"
#include "cpu/algorithms/direct/direct_geometry.h"
#include "cpu/base/caches.h"
#include "cpu/model/estimates.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/config_fields.h"

namespace convtune::cpu {
namespace {

class Direct final : public Algorithm {
 public:
  std::string_view name() const override { return "direct"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }

  Support supports(const ConvProblem& problem, const DeviceInfo& info) const override {
    return direct_supports(problem, info);
  }
  std::vector<ConfigField> fields() const override { return config_fields<DirectConfig>(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& info) const override {
    std::vector<Config> configs;
    for (const DirectConfig& config : direct_candidates(problem, info)) configs.push_back(to_config(config));
    return configs;
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& info, const Config& config) const override {
    try {
      return direct_accepts(problem, info, from_config<DirectConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
  // The multiply-adds that a config issues, junk included, at the measured peak (at half or a
  // quarter of it with narrower vectors than the processor has).
  double bound_us(const ConvProblem& problem, const DeviceInfo& info, const Config& config,
                  const Ceilings& ceilings) const override {
    const auto typed = from_config<DirectConfig>(config);
    const DirectExtents extents(problem, typed, direct_kernels(typed.vector_bits)->lanes);
    const double share = static_cast<double>(typed.vector_bits) / widest_vector_bits(info);
    return 2e6 * extents.issued_multiply_adds / (ceilings.flops_per_second * share);
  }
  std::optional<double> estimated_us(const ConvProblem& problem, const DeviceInfo& info,
                                     const Config& config) const override {
    return microseconds(direct_cycles(problem, info, from_config<DirectConfig>(config)), info);
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& info,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, info, config); !support)
      throw Error(ErrorKind::unsupported,
                  "direct cannot run with '" + to_string(config) + "': " + support.reason());
    return direct_executable(problem, from_config<DirectConfig>(config), info.units, l2_bytes_of(info));
  }
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
  // Raised by hand when the kernels or the meaning of a config field change.
  std::string source_hash() const override { return "direct-10"; }
};

}  // namespace

const Algorithm& direct() {
  return once([] { return Direct(); });
}

}  // namespace convtune::cpu
