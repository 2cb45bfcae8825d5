// amx: first layers, convolutions of few input channels, of bf16 tensors on processors with AMX, whose tiles
// multiply 16 times as much a cycle as vectors of f32. Both layouts, any filter (amx_geometry.h).
#include "base/fork_gate.h"
#include "cpu/algorithms/amx/amx_candidates.h"
#include "cpu/algorithms/amx/amx_executable.h"
#include "cpu/algorithms/amx/amx_kernels.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/model/estimates.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/config_fields.h"

namespace convtune::cpu {
namespace {

class Amx final : public Algorithm {
 public:
  std::string_view name() const override { return "amx"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }

  Support supports(const ConvProblem& problem, const DeviceInfo& info) const override {
    if (const Support support = amx_takes(problem, info); !support) return support;
    return amx_missing().empty() ? Support::yes() : Support::no(amx_missing());
  }
  std::vector<ConfigField> fields() const override { return config_fields<AmxConfig>(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& info) const override {
    return to_configs(amx_candidates(problem, info));
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& info, const Config& config) const override {
    try {
      if (const Support support = supports(problem, info); !support) return support;
      return amx_takes(problem, info, from_config<AmxConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
  // The problem's products at what tiles multiply in the time of f32's measured peak, 16 times as many.
  double bound_us(const ConvProblem& problem, const DeviceInfo&, const Config&,
                  const Ceilings& ceilings) const override {
    constexpr double kMore = 16;
    return 1e6 * problem.flops() / (kMore * ceilings.flops_per_second);
  }
  std::optional<double> estimated_us(const ConvProblem& problem, const DeviceInfo& info,
                                     const Config& config) const override {
    return microseconds(amx_cycles(problem, info, from_config<AmxConfig>(config)), info);
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& info,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, info, config); !support)
      throw Error(ErrorKind::unsupported,
                  "amx cannot run with '" + to_string(config) + "': " + support.reason());
    return amx_executable(problem, from_config<AmxConfig>(config), info.units, widest_vector_bits(info),
                          amx_kernels());
  }
  // Raised by hand when the kernels or the meaning of a config field change.
  std::string source_hash() const override { return "amx-5"; }
};

}  // namespace

const Algorithm& amx() {
  return once([] { return Amx(); });
}

}  // namespace convtune::cpu
