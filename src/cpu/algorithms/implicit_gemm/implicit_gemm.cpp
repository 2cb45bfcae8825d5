// implicit_gemm: inner layers on the CPU. Vector lanes run over output channels and every product takes one
// broadcast input value, so that rows of any length, strides and both layouts cost the same.
#include "base/fork_gate.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_candidates.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_executable.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_geometry.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/model/estimates.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/config_fields.h"

namespace convtune::cpu {
namespace {

class ImplicitGemm final : public Algorithm {
 public:
  std::string_view name() const override { return "implicit_gemm"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }

  Support supports(const ConvProblem& problem, const DeviceInfo& info) const override {
    return implicit_gemm_supports(problem, info);
  }
  std::vector<ConfigField> fields() const override { return config_fields<ImplicitGemmConfig>(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& info) const override {
    return to_configs(implicit_gemm_candidates(problem, info));
  }
  Support accepts(const ConvProblem& problem, const DeviceInfo& info, const Config& config) const override {
    try {
      return implicit_gemm_accepts(problem, info, from_config<ImplicitGemmConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
  // The multiply-adds of all lanes at the measured peak of f32's; pairs of bf16 are two of them.
  double bound_us(const ConvProblem& problem, const DeviceInfo& info, const Config& config,
                  const Ceilings& ceilings) const override {
    const auto typed = from_config<ImplicitGemmConfig>(config);
    const ImplicitGemmGeometry g(problem, typed, implicit_gemm_kernels(typed.vector_bits)->lanes);
    const double share = static_cast<double>(typed.vector_bits) / widest_vector_bits(info);
    const double issued = static_cast<double>(problem.n * g.output_rows * g.output_cols) *
                          static_cast<double>(g.groups * g.filter_vectors * g.lanes) *
                          static_cast<double>(g.taps * g.words);
    return 2e6 * issued / (ceilings.flops_per_second * share);
  }
  std::optional<double> estimated_us(const ConvProblem& problem, const DeviceInfo& info,
                                     const Config& config) const override {
    return microseconds(implicit_gemm_cycles(problem, info, from_config<ImplicitGemmConfig>(config)), info);
  }
  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& info,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, info, config); !support)
      throw Error(ErrorKind::unsupported,
                  "implicit_gemm cannot run with '" + to_string(config) + "': " + support.reason());
    return implicit_gemm_executable(problem, from_config<ImplicitGemmConfig>(config), info.units);
  }
  // Raised by hand when the kernels or the meaning of a config field change.
  std::string source_hash() const override { return "implicit_gemm-4"; }
};

}  // namespace

const Algorithm& implicit_gemm() {
  return once([] { return ImplicitGemm(); });
}

}  // namespace convtune::cpu
