// The parts of KernelAlgorithm that need no template, and the words of shared refusals.
#include "cuda/launch/kernel_algorithm.h"

#include <fmt/format.h>

#include "base/fork_gate.h"
#include "base/sha256.h"
#include "contract/abilities.h"
#include "cuda/launch/kernel_executable.h"
#include "cuda/launch/tile_work.h"
#include "model/capability_facts.h"
#include "model/target_of.h"
#include "problem/activation.h"
#include "problem/rewrite.h"

namespace convtune::cuda {
namespace {

constexpr ComputeCapability kSm90 = {9, 0};

}  // namespace

// It is made before main() begins, so the table that it reads must be a constant.
const Abilities kHalfAbilities = {.types = {DType::f16, DType::bf16},
                                  .f32_bias = true,
                                  .activations = all_activations(),
                                  .residual = true,
                                  .eager_rounding = true};

std::string KernelAlgorithm::source_hash() const {
  const std::string own = kernel_source_hash(kernel_file(name_));
  if (!channels_last()) return own;
  return sha256(own + kernel_source_hash(Transposition::kFile)).substr(0, own.size());
}

std::string KernelAlgorithm::remark(const ConvProblem& problem) const {
  return conversions_in_words(problem, converted(problem));
}

ConvProblem KernelAlgorithm::computed(const ConvProblem& problem) const {
  ConvProblem seen = in_plane(problem);
  if (converted(problem).y) seen.layout = Layout::nhwc;
  return in_plane(seen);
}

ChannelsLast KernelAlgorithm::converted(const ConvProblem& problem) const {
  ConvProblem seen = in_plane(problem);
  if (!is_convertible(seen)) return {};
  if (has_depth() || !seen.has_depth()) return channels_last_of(seen);
  seen.layout = Layout::nhwc;
  const bool frames_are_images = !in_plane(seen).has_depth();
  return {frames_are_images, frames_are_images};
}

Support KernelAlgorithm::takes_any_layout(const ConvProblem& problem, const DeviceInfo& device) const {
  if (Support support = takes(computed(problem), device); !support) return support;
  return takes_conversions(problem, converted(problem));
}

std::optional<double> KernelAlgorithm::estimated_us(const ConvProblem& problem, const DeviceInfo& device,
                                                    const Config& config) const {
  const LaunchPlan plan = launch_plan(computed(problem), device, config);
  const KernelLaunch& launch = plan.kernel_launch();
  return estimate_time(target_of(device), work(problem, device, config),
                       {static_cast<int>(launch.block.x), 0, launch.blocks(), plan.resident_blocks})
      .us;
}

Support KernelAlgorithm::accepts(const ConvProblem& problem, const DeviceInfo& device,
                                 const Config& config) const {
  if (Support support = takes_any_layout(problem, device); !support) return support;
  try {
    return takes_config(computed(problem), device, config);
  } catch (const Error& error) {
    return Support::no(error.what());
  }
}

LaunchPlan KernelAlgorithm::plan(const ConvProblem& problem, const DeviceInfo& device,
                                 const Config& config) const {
  if (const Support support = accepts(problem, device, config); !support)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} cannot run this problem: {}", name_, support.reason()));
  LaunchPlan plan = launch_plan(computed(problem), device, config);
  add_conversions(plan, problem, converted(problem));
  return plan;
}

TileWork KernelAlgorithm::work(const ConvProblem& problem, const DeviceInfo& device,
                               const Config& config) const {
  TileWork work = tile_work(computed(problem), device, config);
  work.input_bytes = read_bytes(problem);
  count_conversions(work, problem, converted(problem));
  return work;
}

void KernelAlgorithm::precompile(const ConvProblem& problem, const DeviceInfo& device,
                                 const Config& config) const {
  const LaunchPlan made = plan(problem, device, config);
  compile(made);
  for (const Step& step : made.run)
    if (const auto* conversion = std::get_if<Conversion>(&step)) compile(conversion->what.job(made.arch));
}

std::unique_ptr<Executable> KernelAlgorithm::build(const ConvProblem& problem, const DeviceInfo& device,
                                                   const Config& config) const {
  return std::make_unique<KernelExecutable>(plan(problem, device, config), device);
}

const KernelAlgorithm* kernel_algorithm(const Algorithm& algorithm) {
  return dynamic_cast<const KernelAlgorithm*>(&algorithm);
}

Support takes_f32(const ConvProblem& problem) {
  const Abilities& abilities = once([] { return Abilities{.activations = kHalfAbilities.activations}; });
  return within(abilities, problem);
}

Support takes_layout(const ConvProblem& problem, Layout layout) {
  if (problem.layout == layout) return Support::yes();
  return Support::no(layout == Layout::nchw ? "it is for NCHW only" : "it is for NHWC only");
}

Support takes_one_type(const ConvProblem& problem, Layout layout) {
  const Abilities& abilities = once([] {
    Abilities of_all = kHalfAbilities;
    of_all.types.push_back(DType::f32);
    return of_all;
  });
  return first_refusal({within(abilities, problem), takes_layout(problem, layout)});
}

Support takes_tf32(const ConvProblem& problem) {
  if (problem.precision != Precision::fp32) return Support::yes();
  return Support::no("it multiplies in tf32, which is less than fp32 asks for");
}

Support takes_tf32_nchw(const ConvProblem& problem) {
  return first_refusal({takes_f32(problem), takes_layout(problem, Layout::nchw), takes_tf32(problem)});
}

Support takes_half(const ConvProblem& problem) {
  return within(kHalfAbilities, problem);
}

Support takes_one_group(const ConvProblem& problem) {
  if (problem.groups == 1) return Support::yes();
  return Support::no(fmt::format("it is for one group only, not {}", problem.groups));
}

Support takes_half_frames(const ConvProblem& problem) {
  const Abilities& abilities = once([] {
    Abilities deep = kHalfAbilities;
    deep.depth = true;
    return deep;
  });
  return within(abilities, problem);
}

Support takes_half_frames_and_caches(const ConvProblem& problem) {
  const Abilities& abilities = once([] {
    Abilities deep = kHalfAbilities;
    deep.depth = deep.cache = true;
    return deep;
  });
  return within(abilities, problem);
}

Support takes_wide_groups(const ConvProblem& problem) {
  constexpr std::int64_t kLeast = 40;
  const std::int64_t channels = problem.c / problem.groups, filters = problem.k / problem.groups;
  if (problem.groups == 1 || (channels % 8 == 0 && channels >= kLeast && filters >= kLeast))
    return Support::yes();
  return Support::no(
      fmt::format("it is for one group, or for several of at least {} channels, in eights, and {} filters, "
                  "not of {} and {}",
                  kLeast, kLeast, channels, filters));
}

Support takes_dense_filters(const ConvProblem& problem) {
  if (problem.dilation_h == 1 && problem.dilation_w == 1) return Support::yes();
  return Support::no("it is for dense filters only");
}

Support takes_depthwise(const ConvProblem& a) {
  if (a.c == a.groups && a.k == a.groups) return Support::yes();
  return Support::no(fmt::format(
      "it is for one filter a channel: {} channels and {} filters in {} groups are not", a.c, a.k, a.groups));
}

Support takes_channels_in_eights(const ConvProblem& problem) {
  if (problem.c % 8 == 0) return Support::yes();
  return Support::no(fmt::format("it is for multiples of 8 input channels, not for {}", problem.c));
}

Support takes_channels_from(std::int64_t least, const ConvProblem& problem) {
  if (problem.c >= least) return Support::yes();
  return Support::no(fmt::format("it is for {} input channels and more, not for {}", least, problem.c));
}

Support first_refusal(std::initializer_list<Support> supports) {
  for (const Support& support : supports)
    if (!support) return support;
  return Support::yes();
}

Support needs_sm80(const DeviceInfo& device) {
  if (device.capability >= kLeastCapability) return Support::yes();
  return Support::no(fmt::format("it needs compute capability {}, and this is {}",
                                 to_string(kLeastCapability), to_string(device.capability)));
}

Support needs_sm90(const DeviceInfo& device) {
  if (device.capability == kSm90) return Support::yes();
  return Support::no(fmt::format("it needs compute capability {}, and this is {}", to_string(kSm90),
                                 to_string(device.capability)));
}

std::int64_t sm90_smem_per_block() {
  return once([] { return capability_facts(kSm90).smem_per_block(); });
}

StageView view_of_stages(StageConfig config, std::int64_t least,
                         std::function<Config(const StageConfig&)> with) {
  StageView view;
  view.parameters.warps_name = "warps", view.parameters.stages_name = "stages";
  for (std::int64_t stages = least; stages <= 8; ++stages) view.parameters.stages.push_back(stages);
  view.config = config;
  view.with = std::move(with);
  return view;
}

StageView stages_alone(std::int64_t warps, std::int64_t stages,
                       std::function<Config(std::int64_t stages)> with_stages) {
  StageView view =
      view_of_stages({warps, stages}, 2, [with_stages = std::move(with_stages)](const StageConfig& wanted) {
        return with_stages(wanted.stages);
      });
  view.warps = {
      {},
      fmt::format("warps stays {}: each warpgroup has tiles or a role of its own, and a block has a "
                  "multiprocessor for itself",
                  warps)};
  return view;
}

std::vector<int> parts_of(int all) {
  std::vector<int> parts;
  for (int count = 1; parts.empty() || parts.back() > 1; count *= 2)
    if (const int part = ceil_div(all, count); parts.empty() || part < parts.back()) parts.push_back(part);
  return parts;
}

void hold_resident(LaunchPlan& plan, int blocks) {
  plan.resident_blocks = blocks;
  plan.most_registers = registers_for(static_cast<int>(plan.kernel_launch().block.x), blocks);
}

}  // namespace convtune::cuda
