// The vendor's answer on a CPU: oneDNN, where one is found. The incumbent of every contest. `blocked=0` takes
// and gives the problem's own layout; `blocked=1` lets oneDNN choose, and counts the conversions of input and
// output. Weights are in oneDNN's own order in both: packed once.
#include "cpu/onednn/onednn.h"

#include <utility>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cpu/base/joined_frames.h"
#include "cpu/onednn/onednn_executable.h"
#include "cpu/onednn/onednn_execution.h"
#include "cpu/onednn/onednn_faults.h"
#include "cpu/onednn/onednn_special.h"
#include "cpu/onednn/onednn_wgrad.h"
#include "problem/config_fields.h"
#include "problem/rewrite.h"

namespace convtune::cpu {
namespace {

class Onednn final : public Algorithm {
 public:
  std::string_view name() const override { return "onednn"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  bool vendor() const override { return true; }
  std::string library() const override { return "oneDNN " + onednn_version(); }

  Support supports(const ConvProblem& problem, const DeviceInfo& device) const override {
    const Support plain = can_create(problem, device, {.blocked = 0});
    return plain ? plain : can_create(problem, device, {.blocked = 1});
  }

  // NCHW is not oneDNN's own way to lie: converting mostly pays. NHWC mostly is.
  std::vector<ConfigField> fields() const override { return config_fields<OnednnConfig>(); }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const override {
    std::vector<Config> configs;
    const std::int64_t first = problem.layout == Layout::nchw ? 1 : 0;
    for (const std::int64_t blocked : {first, 1 - first})
      if (can_create(problem, device, {.blocked = blocked}))
        configs.push_back(to_config(OnednnConfig{blocked}));
    return configs;
  }

  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const override {
    try {
      return can_create(problem, device, from_config<OnednnConfig>(config));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "onednn cannot run this problem: " + support.reason());
    const ThreadCount scope(device.units);
    const ConvProblem stand_in = asked(problem);
    OnednnPrimitiveDesc desc = describe_convolution(stand_in, from_config<OnednnConfig>(config));
    if (problem.direction == Direction::backward_weights)
      return onednn_wgrad_executable(stand_in, std::move(desc), device.units);
    auto executable = onednn_executable(stand_in, std::move(desc), device.units);
    if (problem.direction == Direction::backward_data) return executable;
    return joining_frames(problem, keep_special_numbers(stand_in, std::move(executable), device));
  }

  std::string source_hash() const override { return "onednn-" + onednn_version(); }

 private:
  // The problem that oneDNN is asked. A batch of 0 is never run, but its weights are packed: as for a batch
  // of 1. A cache is joined to x first.
  static ConvProblem asked(const ConvProblem& problem) {
    ConvProblem whole = joined(problem);
    whole.n = std::max<std::int64_t>(whole.n, 1);
    return whole;
  }

  static Support can_create(const ConvProblem& problem, const DeviceInfo& device,
                            const OnednnConfig& config) {
    const Abilities abilities{
        .types = {DType::f32, DType::f16, DType::bf16},
        .mixed_types = true,
        .activations = {Activation::none, Activation::relu, Activation::clip, Activation::silu,
                        Activation::gelu_erf, Activation::gelu_tanh, Activation::hardswish,
                        Activation::leaky_relu, Activation::sigmoid},
        .residual = true,
        .depth = true,
        .cache = true,
        .directions = {Direction::forward, Direction::backward_data, Direction::backward_weights}};
    if (Support support = within(abilities, problem); !support) return support;
    if (problem.n == 0 && problem.direction == Direction::backward_weights)
      return Support::no("it computes no gradient of weights over no images");
    if (std::string fault = onednn_fault(asked(problem), onednn_numbers()); !fault.empty())
      return Support::no(std::move(fault));
    const ThreadCount scope(device.units);
    try {
      describe_convolution(asked(problem), config);
      return Support::yes();
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }
};

}  // namespace

const Algorithm* onednn() {
  return onednn_found() ? &once([] { return Onednn(); }) : nullptr;
}

}  // namespace convtune::cpu
