// winograd: convolutions with fewer products than the direct form has (winograd_transform.h). What runs 3x3
// filters is winograd_channels_first.cpp or winograd_channels_last.cpp, others winograd_decomposed.cpp; what
// is worth trying winograd_candidates.cpp.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd/winograd_candidates.h"
#include "cpu/algorithms/winograd/winograd_executable.h"
#include "cpu/model/estimates.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/winograd/winograd_precision.h"
#include "problem/config_fields.h"

namespace convtune::cpu {
namespace {

class Winograd final : public Algorithm {
 public:
  std::string_view name() const override { return "winograd"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }

  Support supports(const ConvProblem& problem, const DeviceInfo& info) const override {
    return winograd_supports(problem, info);
  }
  std::vector<ConfigField> fields() const override { return config_fields<WinogradConfig>(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& info) const override {
    return to_configs(winograd_candidates(problem, info));
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& info, const Config& config) const override {
    try {
      return winograd_accepts(problem, info, from_config<WinogradConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
  // Its own multiply-adds, fewer than the problem's, as direct counts them.
  double bound_us(const ConvProblem& problem, const DeviceInfo& info, const Config& config,
                  const Ceilings& ceilings) const override {
    const auto typed = from_config<WinogradConfig>(config);
    const WinogradGeometry geometry(problem, typed, direct_kernels(typed.vector_bits)->lanes);
    const double share = static_cast<double>(typed.vector_bits) / widest_vector_bits(info);
    return 2e6 * geometry.issued_multiply_adds / (ceilings.flops_per_second * share);
  }
  std::optional<double> estimated_us(const ConvProblem& problem, const DeviceInfo& info,
                                     const Config& config) const override {
    return microseconds(winograd_cycles(problem, info, from_config<WinogradConfig>(config)), info);
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& info,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, info, config); !support)
      throw Error(ErrorKind::unsupported,
                  "winograd cannot run with '" + to_string(config) + "': " + support.reason());
    const auto typed = from_config<WinogradConfig>(config);
    if (is_decomposed(problem)) return winograd_decomposed(problem, typed, info.units);
    return problem.layout == Layout::nchw ? winograd_channels_first(problem, typed, info.units)
                                          : winograd_channels_last(problem, typed, info.units);
  }
  // Raised by hand when the kernels or the meaning of a config field change.
  std::string source_hash() const override { return "winograd-7"; }
};

}  // namespace

const Algorithm& winograd() {
  return once([] { return Winograd(); });
}

}  // namespace convtune::cpu
