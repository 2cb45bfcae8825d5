// The base of the algorithms with kernels of our own: each says what it takes, which configs
// are worth a try, what one launches (launch_plan.h) and what work that is (time_model.h). Everything else
// follows from these.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "contract/abilities.h"
#include "contract/backend.h"
#include "cuda/launch/conversions.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/launch_plan.h"
#include "cuda/launch/lying_plans.h"
#include "cuda/launch/tile_work.h"
#include "cuda/tile/arithmetic.h"
#include "cuda/tile/packed.h"
#include "model/target_of.h"
#include "model/time_model.h"
#include "problem/config_fields.h"
#include "problem/element.h"

namespace convtune::cuda {

// Named after its kernel's file, cuda/algorithms/NAME/NAME.cuh.
class KernelAlgorithm : public Algorithm {
 public:
  explicit KernelAlgorithm(std::string name) : name_(std::move(name)) {}
  std::string_view name() const final { return name_; }
  std::string remark(const ConvProblem&) const final;
  Device::Kind device_kind() const final { return Device::Kind::cuda; }
  std::string source_hash() const final;
  // By the model of time, without a spill: no candidate has one.
  std::optional<double> estimated_us(const ConvProblem&, const DeviceInfo&, const Config&) const final;
  Support accepts(const ConvProblem&, const DeviceInfo&, const Config&) const final;
  void precompile(const ConvProblem&, const DeviceInfo&, const Config&) const final;
  std::unique_ptr<Executable> build(const ConvProblem&, const DeviceInfo&, const Config&) const final;

  // Returns the launch plan that build() compiles and launches; a config that it does not accept is refused
  // as there.
  LaunchPlan plan(const ConvProblem&, const DeviceInfo&, const Config&) const;
  // Names the order of the packed weights, for a config that it accepts: equal for two plans whose weights
  // are packed to the same bytes. Empty: nobody knows.
  virtual std::string packed_order(const ConvProblem&, const DeviceInfo&, const Config&) const { return {}; }
  // Returns the kernel's work, counted, for a config that it accepts: that of the first part, and the model's
  // time for the others.
  TileWork work(const ConvProblem&, const DeviceInfo&, const Config&) const;
  double later_parts_us(const ConvProblem&, const DeviceInfo&, const Config&) const;

 protected:
  // Returns true for a kernel that exists in NHWC alone. Half precision in NCHW runs between conversions of
  // it (conversions.h), and what follows is asked about the problem in NHWC where y is one.
  virtual ChannelsLast channels_last() const { return {}; }
  virtual ChannelsLast channels_last_of(const ConvProblem&) const { return channels_last(); }
  Support takes_any_layout(const ConvProblem&, const DeviceInfo&) const;
  // Tells whether its kernel has a third dimension.
  virtual bool has_depth() const { return false; }
  // Tells whether it stores outputs between each other (ConvExtents::lies): strides of backward data.
  virtual bool stores_between() const { return false; }
  // Tells whether its filters are packed by gather_and_pack.cuh where they are gathered: halves alone.
  virtual bool gathers_while_packing() const { return false; }
  // How it has gradients of x cut: whether it computes residues with a tap less beside the others.
  virtual Cut cut() const { return {.bare = true}; }
  // Tells whether it stores what lies between so many residues of a row and is met by no tap.
  virtual bool fills_rows(std::int64_t) const { return false; }
  // The problem that the kernel computes, in two dimensions where it can be (problem/rewrite.h). Of a
  // backward data problem its forward parts (problem/forward_parts.h), that with the most products first,
  // where it has parts that the kernel can store: else the problem as it is.
  std::vector<Computed> parts(const ConvProblem& problem) const;
  ConvProblem seen(const ConvProblem& problem) const;  // before it is cut into parts
  // Tells whether parts leave elements of dx that no tap meets, which a kernel of their own stores.
  bool has_bare_part(const ConvProblem& problem) const;
  Computed computed(const ConvProblem& problem) const { return parts(problem).front(); }
  // The tensors that are converted for it. Frames that are images in NHWC alone make x and y be converted.
  ChannelsLast converted(const ConvProblem& problem) const;

  // Checks that do not depend on the config.
  virtual Support takes(const Computed&, const DeviceInfo&) const = 0;
  // For a problem that it takes. May throw, as from_config() does of a config that is not its own.
  virtual Support takes_config(const Computed&, const DeviceInfo&, const Config&) const = 0;
  // For a config that it accepts; pure. The input's bytes need not be in the work.
  virtual LaunchPlan launch_plan(const Computed&, const DeviceInfo&, const Config&) const = 0;
  virtual TileWork tile_work(const Computed&, const DeviceInfo&, const Config&) const = 0;

  // The plan of one part, with what it gathers, and the work of one.
  LaunchPlan plan_of_part(const Computed&, const DeviceInfo&, const Config&) const;
  TileWork work_of_part(const Computed&, const DeviceInfo&, const Config&) const;

 private:
  double us_of(const Computed& part, const TileWork&, const DeviceInfo&, const Config&) const;
  const std::string name_;
};

// The order of packed weights as a text, by all numbers that make it.
template <class Weights>
std::string order_in_words(std::string_view name, const Weights& weights, const Packed& packed,
                           const ConvExtents& a) {
  static_assert(std::has_unique_object_representations_v<Weights> && sizeof(Weights) % sizeof(int) == 0);
  const auto numbers = std::bit_cast<std::array<int, sizeof(Weights) / sizeof(int)>>(weights);
  return fmt::format("{} {} {} {} {} {}", name, static_cast<int>(a.x_type), static_cast<int>(a.bias_type),
                     packed.words(), packed.weights, fmt::join(numbers, " "));
}

// The order of a part's filter where it is gathered before it is packed; "" where it is packed as it lies.
std::string gathering_in_words(const Gathering& weights);

// The algorithm as one of these, or null: of a vendor, which compiles nothing of ours.
const KernelAlgorithm* kernel_algorithm(const Algorithm& algorithm);

// The images that a config is compiled for at most (kMostImages), 0: it is for one batch; and the config
// without.
int most_images(const Config& config);
Config without_most_images(Config config);

// Refusals that several of them share, and the first of some that is one.
Support first_refusal(std::initializer_list<Support> supports);
Support takes_f32(const ConvProblem& problem);  // forward, 2-D
Support takes_layout(const ConvProblem& problem, Layout layout);
Support takes_tf32(const ConvProblem& problem);  // not fp32 products
Support takes_tf32_nchw(const ConvProblem& problem);
// Forward, 2-D; x, w and y of one type, the bias of it or f32; with a residual, and eager.
Support takes_one_type(const ConvProblem& problem, Layout layout);
// Backward weights, 2-D, with `depth` 3-D too, of images that there are; x and dy of one type, dw of any.
Support takes_gradients_of_weights(const ConvProblem& problem, bool depth = false);
Support takes_half(const ConvProblem& problem);  // tells whether it takes fp16 and bf16 alone, in any layout
Support takes_half_frames(const ConvProblem& problem);  // tells the same of 3-D problems, too
Support takes_half_frames_and_caches(const ConvProblem& problem, bool snakes = false);
Support takes_one_group(const ConvProblem& problem);
// Takes one group, or several that are wide enough to keep tensor cores busy; TMA copies eights.
Support takes_wide_groups(const ConvProblem& problem);
Support takes_dense_filters(const ConvProblem& problem);
Support takes_depthwise(const ConvProblem& problem);  // one filter a channel
Support takes_channels_in_eights(const ConvProblem& problem);
Support takes_channels_from(std::int64_t least, const ConvProblem& problem);
Support needs_sm80(const DeviceInfo& device);  // or newer
Support needs_sm90(const DeviceInfo& device);  // and no other

// Shared memory that a block may have where needs_sm90() is satisfied.
std::int64_t sm90_smem_per_block();

// A config and what an estimate says that it takes, in whatever unit.
template <class Typed>
struct Ranked {
  double cost;
  Typed config;
};
constexpr std::size_t kMostCandidates = 64;
constexpr double kHopeless = 2;  // times the best estimate
// The best, best first: at most `most`, and none that is estimated at more than `hopeless` times the best.
// Candidates that are equal stay in their order.
template <class Typed>
std::vector<Typed> best_of(std::vector<Ranked<Typed>> ranked, std::size_t most = kMostCandidates,
                           double hopeless = std::numeric_limits<double>::max()) {
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked<Typed>& one, const Ranked<Typed>& other) {
    return one.cost < other.cost;
  });
  std::vector<Typed> best;
  for (const Ranked<Typed>& one : ranked)
    if (best.size() < most && one.cost <= hopeless * ranked.front().cost) best.push_back(one.config);
  return best;
}

// All, half, a quarter ... of `all`, and 1.
std::vector<int> parts_of(int all);

// Checks what a config whose launch bound keeps `blocks` of it on an SM needs there: whether it can have
// that, the most blocks that could stay (0: none), and registers and shared memory as refusals name them.
template <class Kernel>
bool stays_resident(const Kernel& kernel, const Target& target) {
  return kernel.blocks <= occupancy(target, {kernel.threads(), 0, kernel.smem_bytes()}).blocks;
}
template <class Kernel>
int most_blocks(Kernel kernel, const Target& target) {
  if (kernel.smem_bytes() > target.smem_per_block) return 0;
  kernel.blocks = occupancy(target, {kernel.threads(), 0, kernel.smem_bytes()}).blocks;
  while (kernel.blocks > 0 && kernel.registers() > kernel.register_limit()) --kernel.blocks;
  return kernel.blocks;
}
template <class Kernel>
std::string needs_in_words(const Kernel& kernel, const Target& target) {
  return fmt::format("{} registers (this: {}), {} bytes of shared memory (this: {}) and {} for all blocks",
                     kernel.register_limit(), kernel.registers(), target.smem_per_block, kernel.smem_bytes(),
                     target.smem_per_multiprocessor);
}

// A view of fields `warps` and `stages`, of which there are `least` to 8.
StageView view_of_stages(StageConfig config, std::int64_t least,
                         std::function<Config(const StageConfig&)> with);
// Warps that only the kernel's own roles decide, and 2 to 8 stages in the field `stages`.
StageView stages_alone(std::int64_t warps, std::int64_t stages,
                       std::function<Config(std::int64_t stages)> with_stages);
// As above, for a kernel that has its stages in a field of that name.
template <class Kernel>
StageView stages_alone(const Kernel& kernel) {
  return stages_alone(kernel.threads() / 32, kernel.stages, [kernel](std::int64_t stages) {
    Kernel other = kernel;
    other.stages = static_cast<int>(stages);
    return to_config(other);
  });
}

// Arguments of most kernels, behind their own.
inline const std::vector<Argument> kTensorArguments = {Pointer{Operand::x}, Pointer{Operand::packed},
                                                       Pointer{Operand::y, "float*"}};

// Arguments of kernels with the whole epilogue: tensors of any element type, and a residual.
inline const std::vector<Argument> kEpilogueArguments = {
    Pointer{Operand::x, "const void*"}, Pointer{Operand::packed}, Pointer{Operand::residual, "const void*"},
    Pointer{Operand::y, "void*"}};
// Abilities of all kernels in half precision: fp16 or bf16 for x, w and y, sums in fp32, every epilogue.
extern const Abilities kHalfAbilities;

// Launch bounds of `blocks` blocks a multiprocessor, and the registers that they leave to a thread.
void hold_resident(LaunchPlan& plan, int blocks);

// The plan, of a kernel whose blocks go from tile to tile in any multiple of `unit` (KernelLaunch::unit).
LaunchPlan going_on(LaunchPlan plan, int unit);

// The shape that they all have: of an algorithm whose config is the struct `Kernel` (its config.h).
template <class Kernel>
class KernelAlgorithmOf : public KernelAlgorithm {
 public:
  using KernelAlgorithm::KernelAlgorithm;
  Support supports(const ConvProblem& problem, const DeviceInfo& device) const final {
    if (Support support = takes_any_layout(problem, device); !support) return support;
    const std::vector<Computed> all = parts(problem);
    if (!has_configs(all.front(), device)) return Support::no(why_none(all.front(), device));
    if (all.size() > 1 && candidates(problem, device).empty())
      return Support::no("no config of its largest part serves the others of this gradient");
    return Support::yes();
  }
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const final {
    if (!takes_any_layout(problem, device)) return {};
    const std::vector<Computed> all = parts(problem);
    std::vector<Config> some = to_configs(configs(all.front(), device));
    for (std::size_t i = 1; i < all.size(); ++i)
      std::erase_if(some, [&](const Config& config) { return !takes_config(all[i], device, config); });
    return some;
  }
  // Conversions do not count: what they move, an L2 may hold.
  double bound_us(const ConvProblem& asked, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const final {
    const Computed problem = computed(asked);
    return 1e6 * std::max(flops(problem, kernel_for(problem, config)) /
                              ceilings.peak(element_row(problem.dtype.x).products),
                          problem.bytes() / ceilings.bytes_per_second);
  }
  std::optional<StageView> stage_view(const ConvProblem& problem, const DeviceInfo&,
                                      const Config& config) const final {
    return stages(kernel_for(computed(problem), config));
  }
  std::vector<ConfigField> fields() const final { return config_fields(lying_if_able<Kernel>()); }
  // Known for kernels that have the order as numbers of its own (tile/pack.cuh).
  std::string packed_order(const ConvProblem& problem, const DeviceInfo&, const Config& config) const final {
    std::string order;
    if (is_lying(config)) return std::string(kLyingOrder);
    if constexpr (requires(const Kernel& kernel) { kernel.weights(); })
      for (const Computed& part : parts(problem)) {
        const Kernel kernel = kernel_for(part, config);
        order += (order.empty() ? "" : "; ") +
                 order_in_words(name(), kernel.weights(), kernel.packed(), kernel.conv) +
                 gathering_in_words(part.weights);
      }
    return order;
  }

 protected:
  virtual Kernel kernel_of(const Computed& problem, const Config& config) const {
    return from_config(config, Kernel{.conv = extents_of(problem)});
  }
  // Asked only for a problem that it takes: the configs worth a try, best first; whether there is one, for
  // those who know without ranking them; and why there is none.
  virtual std::vector<Kernel> configs(const Computed&, const DeviceInfo&) const = 0;
  virtual bool has_configs(const Computed& problem, const DeviceInfo& device) const {
    return !configs(problem, device).empty();
  }
  virtual std::string why_none(const ConvProblem&, const DeviceInfo&) const = 0;
  // Refusals say what is wrong with the config alone.
  virtual Support takes_kernel(const Kernel&, const DeviceInfo&) const = 0;
  virtual LaunchPlan launch(const Kernel&, const DeviceInfo&) const = 0;
  virtual TileWork counted(const Kernel&) const = 0;
  // Returns its multiply-adds, those on padding included.
  virtual double flops(const ConvProblem& problem, const Kernel&) const { return problem.flops(); }
  virtual std::optional<StageView> stages(const Kernel&) const { return {}; }

  // The kernel and the model's time for it, of which `blocks` are launched for the problem.
  Ranked<Kernel> timed(const Kernel& kernel, const ConvProblem& problem, const Target& target,
                       double blocks) const {
    TileWork work = counted(kernel);
    work.input_bytes = read_bytes(problem);
    return {estimate_time(target, work, {kernel.threads(), 0, blocks, resident(kernel)}).us, kernel};
  }

  // The plan of a kernel that reads x and packed weights and writes y, beside one that packs. A kernel that
  // asks for alignment has a second form for tensors that do not begin at multiples of 16 bytes.
  LaunchPlan plan_of(const Kernel& kernel, const Packed& packed, const DeviceInfo& device, Extent3 grid,
                     std::vector<Argument> arguments, const std::vector<Argument>& more_to_pack = {}) const {
    constexpr unsigned kPackThreads = 256;  // tile/pack.cuh
    LaunchPlan plan;
    plan.name = name(), plan.arch = device.isa;
    plan.configs = {to_cuda(kernel)};
    if constexpr (requires { kernel.asks_alignment(); })
      if (Kernel any = kernel; kernel.asks_alignment()) {
        any.aligned = false;
        plan.config_for_any_pointer = to_cuda(any);
      }
    if constexpr (requires { kernel.product_columns(); }) plan.product_columns = kernel.product_columns();
    plan.packed = packed;
    if (packed.flagged) plan.pack.emplace_back(Clear{{Operand::packed, "float*", packed.flag_at()}, 1});
    std::vector<Argument> to_pack = {Pointer{Operand::w}, Pointer{Operand::bias},
                                     Pointer{Operand::packed, "unsigned*"}};
    to_pack.insert(to_pack.end(), more_to_pack.begin(), more_to_pack.end());
    plan.pack.emplace_back(KernelLaunch{LaunchPlan::kPack,
                                        {static_cast<unsigned>(ceil_div(packed.threads(), kPackThreads))},
                                        {kPackThreads},
                                        0,
                                        std::move(to_pack)});
    plan.run.emplace_back(KernelLaunch{LaunchPlan::kRun,
                                       grid,
                                       {static_cast<unsigned>(kernel.threads())},
                                       static_cast<std::size_t>(kernel.smem_bytes()),
                                       std::move(arguments)});
    hold_resident(plan, resident(kernel));
    if constexpr (requires { kernel.register_limit(); }) plan.most_registers = kernel.register_limit();
    return plan;
  }
  LaunchPlan plan_of(const Kernel& kernel, const DeviceInfo& device, Extent3 grid,
                     std::vector<Argument> arguments = kTensorArguments) const {
    return plan_of(kernel, kernel.packed(), device, grid, std::move(arguments));
  }

 private:
  // Blocks that an SM holds at once: a choice of the config, or one. A bool of that name says that weights
  // stay.
  static int resident(const Kernel& kernel) {
    if constexpr (requires {
                    { kernel.resident() } -> std::same_as<int>;
                  })
      return kernel.resident();
    else if constexpr (requires { int{kernel.blocks}; })
      return kernel.blocks;
    else
      return 1;
  }
  static constexpr bool kTakesAnyBatch = requires(Kernel kernel) { kernel.any_batch = true; };
  Kernel kernel_for(const Computed& problem, const Config& config) const {
    return kernel_of(problem, kTakesAnyBatch ? without_most_images(config) : config);
  }
  // The kernel that is compiled: where the config is for any batch, of the most images.
  Kernel compiled_for(const Computed& problem, const Config& config) const {
    Kernel kernel = kernel_for(problem, config);
    if constexpr (kTakesAnyBatch)
      if (const int most = most_images(config); most > 0) {
        Computed largest = problem;
        largest.n = most;
        kernel = kernel_for(largest, config);
        kernel.any_batch = true;
      }
    return kernel;
  }
  Support takes_config(const Computed& problem, const DeviceInfo& device, const Config& config) const final {
    const Kernel kernel = compiled_for(problem, config);
    if (most_images(config) > 0 && kernel.conv.n < problem.n)
      return Support::no(
          fmt::format("it is compiled for {} images at most, not for {}", kernel.conv.n, problem.n));
    const Support support = takes_kernel(kernel, device);
    if (support) return support;
    return Support::no(to_string(config) +
                       " is not one of its configs for this problem: " + support.reason());
  }
  LaunchPlan launch_plan(const Computed& problem, const DeviceInfo& device,
                         const Config& config) const final {
    LaunchPlan plan = launch(kernel_for(problem, config), device);
    if (const int most = most_images(config); most > 0) {
      LaunchPlan compiled = launch(compiled_for(problem, config), device);
      plan.configs = std::move(compiled.configs);
      plan.config_for_any_pointer = std::move(compiled.config_for_any_pointer);
      plan.most_images = most;
    }
    return plan;
  }
  TileWork tile_work(const Computed& problem, const DeviceInfo&, const Config& config) const final {
    return counted(kernel_for(problem, config));
  }
};

}  // namespace convtune::cuda
