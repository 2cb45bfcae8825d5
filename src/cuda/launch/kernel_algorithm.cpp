// The parts of KernelAlgorithm that need no template, and the words of shared refusals.
#include "cuda/launch/kernel_algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/fork_gate.h"
#include "base/sha256.h"
#include "cuda/launch/bare_step.h"
#include "cuda/launch/gather_step.h"
#include "cuda/launch/kernel_executable.h"
#include "cuda/launch/lying_plans.h"
#include "model/capability_facts.h"
#include "problem/activation.h"
#include "problem/forward_parts.h"
#include "problem/rewrite.h"

namespace convtune::cuda {
namespace {

constexpr ComputeCapability kSm90 = {9, 0};

// The share of dx that no tap meets.
double bare_share(const ConvProblem& a, bool of_columns) {
  const std::array<std::uint64_t, 3> met = met_residues(a);
  const std::array<std::int64_t, 3> strides = {a.stride_d, a.stride_h, of_columns ? a.stride_w : 1};
  double share = 1;
  for (std::size_t i = 0; i < met.size(); ++i)
    if (strides[i] > 1 && strides[i] <= kMostBareStride)
      share *= static_cast<double>(std::popcount(met[i])) / static_cast<double>(strides[i]);
  return 1 - share;
}

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

ConvProblem KernelAlgorithm::seen(const ConvProblem& problem) const {
  ConvProblem seen = in_plane(problem);
  if (converted(problem).y) seen.layout = Layout::nhwc;
  return in_plane(seen);
}

bool KernelAlgorithm::has_bare_part(const ConvProblem& problem) const {
  if (problem.direction != Direction::backward_data) return false;
  const Computed first = computed(problem);
  return first.direction == Direction::forward && has_bare_residues(seen(problem), !first.fills_rows);
}

std::vector<Computed> KernelAlgorithm::parts(const ConvProblem& problem) const {
  const ConvProblem whole = seen(problem);
  const bool weights_last = problem.layout == Layout::nhwc || problem.t * problem.r * problem.s == 1;
  std::vector<Computed> computed;
  const std::vector<ForwardPart> all = forward_parts(whole, cut());
  const bool whole_rows =
      std::ranges::all_of(all, [&](const ForwardPart& part) { return part.width == all.front().width; });
  for (const ForwardPart& part : all) {
    computed.push_back(computed_part(part));
    computed.back().weights_last = weights_last;
    computed.back().fills_rows =
        whole_rows && part.width.residues < part.width.stride && fills_rows(part.width.residues);
    if (part.is_whole()) static_cast<ConvProblem&>(computed.back()) = in_plane(part.problem);
  }
  // Several parts would each convert the tensors.
  const bool stores = std::ranges::all_of(
      computed, [&](const Computed& part) { return stores_between() || !part.lies.between(); });
  const bool convert = computed.size() > 1 && channels_last() && is_convertible(computed.front());
  if (computed.empty() || !stores || convert) return {Computed{whole, {}, {}, {}, weights_last}};
  return computed;
}

ChannelsLast KernelAlgorithm::converted(const ConvProblem& problem) const {
  ConvProblem seen = in_plane(problem);
  bool between = false;
  if (seen.direction == Direction::backward_data) {
    const std::vector<ForwardPart> parts = forward_parts(seen, cut());
    if (parts.size() != 1 || !(stores_between() || parts.front().is_whole())) return {};
    between = !parts.front().is_whole();
    seen = parts.front().is_whole() ? in_plane(parts.front().problem) : parts.front().problem;
  }
  if (!is_convertible(seen)) return {};
  if (between && channels_last()) return {.x = true, .y = true};  // outputs are stored so
  if (has_depth() || !seen.has_depth()) return channels_last_of(seen);
  seen.layout = Layout::nhwc;
  const bool frames_are_images = !in_plane(seen).has_depth();
  return {frames_are_images, frames_are_images};
}

Support KernelAlgorithm::takes_any_layout(const ConvProblem& problem, const DeviceInfo& device) const {
  for (const Computed& part : parts(problem))
    if (Support support = takes(part, device); !support) return support;
  if (problem.snake != Snake::none && problem.layout != Layout::nhwc)
    return Support::no("outputs of a snake are stored channels last only");
  if (problem.snake != Snake::none && has_bare_part(problem))
    return Support::no("it has no snake where strides leave outputs without a tap");
  return takes_conversions(problem, converted(problem));
}

std::optional<double> KernelAlgorithm::estimated_us(const ConvProblem& problem, const DeviceInfo& device,
                                                    const Config& config) const {
  return us_of(computed(problem), work(problem, device, config), device, config) +
         later_parts_us(problem, device, config) + packing_us(parts(problem), config);
}

double KernelAlgorithm::later_parts_us(const ConvProblem& problem, const DeviceInfo& device,
                                       const Config& config) const {
  double us = 0;
  const std::vector<Computed> all = parts(problem);
  for (std::size_t i = 1; i < all.size(); ++i)
    us += us_of(all[i], work_of_part(all[i], device, config), device, config);
  return us;
}

double KernelAlgorithm::us_of(const Computed& part, const TileWork& counted, const DeviceInfo& device,
                              const Config& config) const {
  const LaunchPlan plan = launch_plan(part, device, config);
  const KernelLaunch& launch = plan.kernel_launch();
  return estimate_time(target_of(device), counted,
                       {static_cast<int>(launch.block.x), 0, launch.blocks(), plan.resident_blocks})
      .us;
}

Support KernelAlgorithm::accepts(const ConvProblem& problem, const DeviceInfo& device,
                                 const Config& config) const {
  if (Support support = takes_any_layout(problem, device); !support) return support;
  try {
    for (const Computed& part : parts(problem))
      if (Support support = takes_config(part, device, config); !support) return support;
    return Support::yes();
  } catch (const Error& error) {
    return Support::no(error.what());
  }
}

LaunchPlan KernelAlgorithm::plan(const ConvProblem& problem, const DeviceInfo& device,
                                 const Config& config) const {
  if (const Support support = accepts(problem, device, config); !support)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} cannot run this problem: {}", name_, support.reason()));
  std::vector<LaunchPlan> plans;
  for (const Computed& part : parts(problem)) plans.push_back(plan_of_part(part, device, config));
  if (has_bare_part(problem)) {
    std::optional<Pointer> bias;
    if (!is_lying(config)) bias = {Operand::packed, "const float*", plans.front().packed.bias_at()};
    plans.front().run.emplace_back(
        Bare{bias, Operand::residual, Operand::y, bare_residues_of(seen(problem), computed(problem))});
  }
  add_conversions(plans.front(), problem, converted(problem));
  // A forward part reads dy as its x and writes dx as its y.
  if (problem.direction == Direction::backward_data)
    for (LaunchPlan& plan : plans)
      for (Step& step : plan.run)
        replace(step, Operand::x, Operand::dy), replace(step, Operand::y, Operand::dx);
  LaunchPlan plan = std::move(plans.front());
  plan.more.assign(std::make_move_iterator(plans.begin() + 1), std::make_move_iterator(plans.end()));
  return plan;
}

LaunchPlan KernelAlgorithm::plan_of_part(const Computed& part, const DeviceInfo& device,
                                         const Config& config) const {
  LaunchPlan plan = launch_plan(part, device, config);
  if (is_lying(config))
    lie(plan, part);
  else
    add_gathering(plan, part, gathers_while_packing());
  return plan;
}

TileWork KernelAlgorithm::work_of_part(const Computed& part, const DeviceInfo& device,
                                       const Config& config) const {
  TileWork work = tile_work(part, device, config);
  work.input_bytes = read_bytes(part);
  return work;
}

TileWork KernelAlgorithm::work(const ConvProblem& problem, const DeviceInfo& device,
                               const Config& config) const {
  TileWork work = work_of_part(computed(problem), device, config);
  if (problem.direction == Direction::forward) work.input_bytes = read_bytes(problem);
  count_conversions(work, problem, converted(problem));
  if (has_bare_part(problem)) {
    work.conversions += 1;
    work.converted_bytes += bare_share(problem, !computed(problem).fills_rows) *
                            static_cast<double>(problem.input_elements() * size_of(problem.dtype.x));
  }
  return work;
}

void KernelAlgorithm::precompile(const ConvProblem& problem, const DeviceInfo& device,
                                 const Config& config) const {
  const LaunchPlan made = plan(problem, device, config);
  compile(made);
  for (const LaunchPlan& part : made.more) compile(part);
  for (const Step& step : made.run)
    if (const auto* conversion = std::get_if<Conversion>(&step))
      compile(conversion->what.job(made.arch));
    else if (const auto* bare = std::get_if<Bare>(&step))
      compile(StoreBare::job(bare->what, made.arch));
  for (const Step& step : made.pack)
    if (const auto* gathered = std::get_if<Gathered>(&step))
      compile(Gather::job(gathered->element_bytes, made.arch));
}

std::unique_ptr<Executable> KernelAlgorithm::build(const ConvProblem& problem, const DeviceInfo& device,
                                                   const Config& config) const {
  return std::make_unique<KernelExecutable>(plan(problem, device, config), device);
}

std::string gathering_in_words(const Gathering& weights) {
  if (weights.elements() == 0) return {};
  return fmt::format(" of {} {} {} {}", weights.begin, fmt::join(weights.extents, " "),
                     fmt::join(weights.steps, " "), fmt::join(weights.whole, " "));
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

Support takes_gradients_of_weights(const ConvProblem& problem, bool depth) {
  Abilities abilities{.types = {DType::f32, DType::f16, DType::bf16},
                      .mixed_types = true,
                      .directions = {Direction::backward_weights}};
  abilities.depth = depth;
  if (Support support = within(abilities, problem); !support) return support;
  if (problem.dtype.x != problem.dtype.y)
    return Support::no(
        fmt::format("it is for x and dy of one type, and these are {}", to_string(problem.dtype)));
  if (problem.n == 0) return Support::no("there is no image to sum over");
  return Support::yes();
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

Support takes_half_frames_and_caches(const ConvProblem& problem, bool snakes) {
  Abilities deep = kHalfAbilities;
  deep.depth = deep.cache = true, deep.snake = snakes;
  return within(deep, problem);
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

LaunchPlan going_on(LaunchPlan plan, int unit) {
  std::get<KernelLaunch>(plan.run.back()).unit = static_cast<unsigned>(unit);
  return plan;
}

}  // namespace convtune::cuda
