// `depthwise_weight_gradient_half_sm90`: gradients of depthwise weights in half precision, channels last, on
// tensor cores of compute capability 9.0 (depthwise_weight_gradient_half_sm90.cuh). Which problems it takes,
// its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/depthwise_weight_gradient_half_sm90/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

using Kernel = DepthwiseWeightGradientHalfSm90;

constexpr double kRequestBytes = 20;

// A block's rows of x, and those of dy that the first of them meets besides.
TileWork work_of(const Kernel& a) {
  const double rows = static_cast<double>(a.rows()) / a.split;
  const double warm = std::min(a.depth() - 1.0, rows), steps = rows + warm;
  const double warps = a.consumers(), products = 4.0 * a.conv.r;
  const double loads = 2.0 * a.slots() + a.strips;  // loads of 8 bytes a lane
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.persistent = work.load_beside = true;
  work.load_warps = a.copying();
  work.in_flight_bytes = (a.stages - 1.0) * a.stage_bytes();
  const double input = 1.0 * a.input_pixels(), gradient = 1.0 * a.gradient_pixels();
  // A pixel is a request to TMA, which takes longer than its bytes do, also where it is none.
  work.load.l2_bytes = (rows * input + steps * gradient) * (a.pixel_bytes() + kRequestBytes);
  work.load.instructions = 40.0 * steps;
  work.load.wavefronts = (rows * input + steps * gradient) * a.octets / 8;
  work.multiply.products = warps * rows * products * (a.slots() > 2 ? 1 : 0.5);
  work.multiply.instructions =
      warps * (rows * (products + loads + 24 + 20) + warm * (loads + 30) + steps * 32 * a.bias);
  work.multiply.wavefronts = warps * rows * (a.slots() + a.strips) * 2 * a.meeting(a.input_pitch()) +
                             warps * steps * a.slots() * 2 * a.meeting(a.gradient_pitch()) +
                             warps * 4 * (8 * a.conv.r + 40);
  work.multiply.waits = 4;
  work.stored_bytes = 4.0 * a.sums().words() / a.chunks();
  work.pieces = work.stored_bytes / 4 / a.channels();
  return work;
}

// x and dy as [image][row][column][channel]: a row of some images at a time.
TensorMaps maps_of(const Kernel& kernel) {
  const auto wide = [](auto value) { return static_cast<std::uint64_t>(value); };
  const auto narrow = [](int value) { return static_cast<std::uint32_t>(value); };
  const ConvExtents& a = kernel.conv;
  const Swizzle swizzle = kernel.octets == 4   ? Swizzle::bytes_64
                          : kernel.octets == 2 ? Swizzle::bytes_32
                                               : Swizzle::none;
  const auto map = [&](int height, int width, int columns, ElementType type) {
    const std::uint64_t pixel = 2 * wide(a.c), row = pixel * wide(width), image = row * wide(height);
    return TensorMapLayout{.extents = {wide(a.c), wide(width), wide(height), wide(a.n), 1},
                           .strides = {pixel, row, image, image * wide(a.n)},
                           .box = {narrow(kernel.channels()), narrow(columns), 1, narrow(kernel.images()), 1},
                           .swizzle = swizzle,
                           .type = type};
  };
  return {"convtune::depthwise_weight_gradient_half_sm90::Maps",
          {{Operand::x, {map(a.h, a.w, kernel.input_pitch(), a.x_type)}},
           {Operand::dy, {map(a.p, a.q, kernel.gradient_pitch(), a.y_type)}}}};
}

constexpr int kLeastStages = 3, kMostSides = 16;
constexpr int kEnoughBytes = 80 << 10;  // stages of a multiprocessor: 185 KB took a tenth longer than 77

// Every valid config, each with enough stages.
std::vector<Kernel> configs_of(const Kernel& plain, const Target& target) {
  std::vector<Kernel> configs;
  const ConvExtents& conv = plain.conv;
  for (const int octets : {1, 2, 4})
    for (const int parts : {1, 2, 4})
      for (const int sides : {1, 2, 3, 4, 6, 8, 12, kMostSides}) {
        bool possible = false;
        for (const int strips : {1, 2, 4}) {
          Kernel kernel = plain;
          kernel.octets = octets, kernel.parts = parts, kernel.strips = strips;
          kernel.width = ceil_div(conv.q, parts * sides);
          if (kernel.width > 8 * Kernel::kSlots || (parts * sides > 1 && kernel.width < 16)) continue;
          // Half of the images or more are none.
          if (8 * (octets - 1) >= conv.c || (possible && kernel.images() >= 2 * conv.n)) continue;
          if (!kernel.possible()) continue;
          possible = true;
          kernel.stages = 2;
          for (kernel.blocks = most_blocks(kernel, target); kernel.blocks >= 1; --kernel.blocks) {
            Kernel more = kernel;
            while (++more.stages <= Kernel::kMostStages && most_blocks(more, target) >= kernel.blocks &&
                   (kernel.stages < kLeastStages ||
                    kernel.blocks * kernel.stages * kernel.stage_bytes() < kEnoughBytes))
              kernel.stages = more.stages;
            if (kernel.stages < kLeastStages) continue;
            const long long room = 1LL * target.multiprocessors * kernel.blocks / kernel.chunks();
            kernel.split = static_cast<int>(std::clamp(room, 1LL, std::min(kernel.rows(), 1LL << 16)));
            if (kernel.valid(target.smem_per_block)) configs.push_back(kernel);
          }
        }
      }
  return configs;
}

class DepthwiseWeightGradientHalfSm90Algorithm final : public KernelAlgorithmOf<Kernel> {
 public:
  DepthwiseWeightGradientHalfSm90Algorithm() : KernelAlgorithmOf("depthwise_weight_gradient_half_sm90") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support =
            first_refusal({needs_sm90(device), takes_gradients_of_weights(a), takes_depthwise(a),
                           takes_layout(a, Layout::nhwc), takes_channels_in_eights(a), fits_extents(a)});
        !support)
      return support;
    if (a.dtype.x == DType::f32) return Support::no("it is for x and dy in half precision");
    if (!plain_of(a).fits_problem())
      return Support::no(fmt::format(
          "it is for strides of 1 and filters that reach over at most 9 rows and columns, with "
          "fewer rows of padding on either side than those, not for {}x{} by {}x{} with dilations "
          "of {}x{} and {} and {} rows of padding",
          a.stride_h, a.stride_w, a.r, a.s, a.dilation_h, a.dilation_w, a.pad_top, a.pad_bottom));
    return Support::yes();
  }
  Kernel kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static Kernel plain_of(const ConvProblem& problem) {
    return {.conv = extents_of(problem), .w_type = element_type_of(problem.dtype.w), .bias = problem.bias};
  }

  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return fmt::format(
        "sums of its filter's rows do not fit in registers, dy has more than {} columns, or "
        "there are more than 2^30 numbers in an image, or rows",
        8 * Kernel::kSlots * Kernel::kLanes * kMostSides);
  }
  std::vector<Kernel> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<Kernel>> ranked;
    const Target target = target_of(device);
    for (const Kernel& kernel : configs_of(plain_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const Kernel& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format(
          "parts are 1, 2 or 4, and eights of channels, too; strips of a lane have at most {} blocks of 8 "
          "columns (here {}), and a row at most 256 columns (here {})",
          Kernel::kSlots, kernel.slots(), kernel.input_pitch()));
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(fmt::format("at most {} columns and a split of {}, {}", kernel.conv.q, kernel.rows(),
                                   needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const Kernel& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = sums_arguments();
    arguments.insert(arguments.begin(), maps_of(kernel));
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, std::move(arguments));
    plan.most_registers = kernel.launch_registers();
    add_up_behind(plan, kernel.partial_words(), blocks_of_fours(kernel.rank_fours(), kernel.split),
                  kAddThreads);
    return plan;
  }
  TileWork counted(const Kernel& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const Kernel& a) const override {
    return 2.0 * 2048 * a.channels() * a.conv.r * static_cast<double>(a.rows()) * a.chunks();
  }
};

}  // namespace

const Algorithm& depthwise_weight_gradient_half_sm90() {
  return once([] { return DepthwiseWeightGradientHalfSm90Algorithm(); });
}

}  // namespace convtune::cuda
