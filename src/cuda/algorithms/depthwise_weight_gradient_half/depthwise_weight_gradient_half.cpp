// `depthwise_weight_gradient_half`: gradients of depthwise weights in half precision, channels last or first,
// on tensor cores of compute capability 8.0 and up (depthwise_weight_gradient_half.cuh). Which problems it
// takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/depthwise_weight_gradient_half/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

// A turn of a block: strips from their first row to the last.
TileWork work_of(const DepthwiseWeightGradientHalf& a) {
  const double stages = a.stages(), warps = a.warps, channels = a.warp_channels();
  const double brought = a.thread_inputs() + a.thread_gradients();
  const double products = a.step * channels * (a.conv.r + a.bias);  // products of a warp in a stage
  const double share = 1.0 * a.rows / (a.rows + a.depth() - 1);     // rows of dy for each row of x
  TileWork work;
  work.tiles = static_cast<double>(a.turns()) * static_cast<double>(a.all_blocks());
  work.persistent = true;
  // A step in registers comes while the one before it is multiplied, and is there no sooner.
  work.load_beside = a.ahead > 0 || !a.conv.nhwc;
  const bool words = a.conv.nhwc || a.conv.w % 4 == 0;  // in NCHW else halves
  work.load.instructions = warps * stages * brought *
                           (a.conv.nhwc ? (a.ahead > 0 ? 32 : 34)
                            : words     ? 6
                                        : 22);
  work.load.wavefronts = warps * stages * brought * (a.conv.nhwc ? (a.ahead > 0 ? 32 : 16) : words ? 4 : 8);
  // Eight channels of a pixel are half of what L2 gives.
  const double of_sectors = a.conv.nhwc && a.octets == 1 && a.conv.c > 8 ? 2 : 1;
  work.load.l2_bytes = of_sectors * 32.0 * stages * (a.input_pairs() + share * a.gradient_pairs());
  work.in_flight_bytes = std::max(a.ahead, 1) * 32.0 * (a.input_pairs() + a.gradient_pairs());
  work.multiply.products = warps * stages * products;
  work.multiply.instructions = warps * stages * (products + a.step * channels * 6 + 40);
  work.multiply.wavefronts = warps * stages * a.step * channels * 8;
  work.multiply.waits = stages;
  work.stored_bytes = 4.0 * a.sums().words() / a.chunks() / static_cast<double>(a.turns());
  work.pieces = work.stored_bytes / 4 / a.channels();
  return work;
}

// Every valid config.
std::vector<DepthwiseWeightGradientHalf> configs_of(const DepthwiseWeightGradientHalf& plain,
                                                    const Target& target) {
  std::vector<DepthwiseWeightGradientHalf> configs;
  const ConvExtents& conv = plain.conv;
  std::vector<int> across;
  for (const int sides : {1, 2, 4, 8, 16, 32}) {
    const int some = ceil_div(ceil_div(conv.q, 8), sides);
    if (some <= DepthwiseWeightGradientHalf::kSlots &&
        std::find(across.begin(), across.end(), some) == across.end() && (across.size() < 2))
      across.push_back(some);
  }
  for (const int octets : {1, 2, 4})
    for (const int warp_channels : {1, 2, 4})
      for (const int some : across)
        for (const int bands : {1, 2, 3, 4, 6, 8, 16})
          for (const int step : {1, 2, 4})
            for (const int ahead : {0, 2, 3, 4}) {
              DepthwiseWeightGradientHalf kernel = plain;
              kernel.ahead = ahead;
              kernel.octets = octets, kernel.across = some, kernel.rows = ceil_div(conv.p, bands);
              kernel.step = step, kernel.warps = 8 * octets / warp_channels;
              if (kernel.warps > 16 || kernel.warps < 2 || (bands > 1 && kernel.rows < 4)) continue;
              if (8 * (octets - 1) >= conv.c || !kernel.possible()) continue;
              kernel.blocks = lesser(most_blocks(kernel, target), 16);
              if (kernel.blocks < 1) continue;
              const long long room = 1LL * target.multiprocessors * kernel.blocks / kernel.chunks();
              kernel.split = static_cast<int>(std::clamp(room, 1LL, std::min(kernel.groups(), 1LL << 16)));
              // As few blocks as need no more turns.
              kernel.split = static_cast<int>(ceil_div(kernel.groups(), kernel.turns()));
              if (kernel.valid(target.smem_per_block)) configs.push_back(kernel);
            }
  return configs;
}

class DepthwiseWeightGradientOfHalves final : public KernelAlgorithmOf<DepthwiseWeightGradientHalf> {
 public:
  DepthwiseWeightGradientOfHalves() : KernelAlgorithmOf("depthwise_weight_gradient_half") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal(
            {needs_sm80(device), takes_gradients_of_weights(a), takes_depthwise(a), fits_extents(a)});
        !support)
      return support;
    if (a.dtype.x == DType::f32) return Support::no("it is for x and dy in half precision");
    if (a.layout == Layout::nhwc)
      if (Support support = takes_channels_in_eights(a); !support) return support;
    if (!plain_of(a).fits_problem())
      return Support::no(fmt::format(
          "it is for strides of 1 and filters that reach over at most 9 rows and columns, not for {}x{} by "
          "{}x{} with dilations of {}x{}",
          a.stride_h, a.stride_w, a.r, a.s, a.dilation_h, a.dilation_w));
    return Support::yes();
  }
  DepthwiseWeightGradientHalf kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static DepthwiseWeightGradientHalf plain_of(const ConvProblem& problem) {
    return {.conv = extents_of(problem), .w_type = element_type_of(problem.dtype.w), .bias = problem.bias};
  }

  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "there are more than 2^30 numbers in an image, or strips";
  }
  std::vector<DepthwiseWeightGradientHalf> configs(const Computed& a,
                                                   const DeviceInfo& device) const override {
    std::vector<Ranked<DepthwiseWeightGradientHalf>> ranked;
    const Target target = target_of(device);
    for (const DepthwiseWeightGradientHalf& kernel : configs_of(plain_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DepthwiseWeightGradientHalf& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no("warps have 1, 2 or 4 of a block's channels each, all of them the same number");
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(fmt::format("at most {} rows, {} blocks of columns and a split of {}, {}",
                                   kernel.conv.p, ceil_div(kernel.conv.q, 8), kernel.groups(),
                                   needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const DepthwiseWeightGradientHalf& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, sums_arguments());
    add_up_behind(plan, kernel.partial_words(), blocks_of_fours(kernel.rank_fours(), kernel.split),
                  kAddThreads);
    return plan;
  }
  TileWork counted(const DepthwiseWeightGradientHalf& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const DepthwiseWeightGradientHalf& a) const override {
    return 2.0 * 2048 * a.step * a.channels() * a.conv.r * a.stages() * static_cast<double>(a.groups()) *
           a.chunks();
  }
};

}  // namespace

const Algorithm& depthwise_weight_gradient_half() {
  return once([] { return DepthwiseWeightGradientOfHalves(); });
}

}  // namespace convtune::cuda
