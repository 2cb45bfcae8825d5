// `depthwise_weight_gradient_sm80`: gradients of depthwise weights, channels last, on CUDA cores, compute
// capability 8.0 and up (depthwise_weight_gradient_sm80.cuh). Which problems it takes, its search space, and
// what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/depthwise_weight_gradient_sm80/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

// A turn of a block: a strip for each of its workers.
TileWork work_of(const DepthwiseWeightGradientSm80& a) {
  const ConvExtents& conv = a.conv;
  const double warps = a.threads() / 32.0, outputs = round_up(lesser(a.columns, conv.q), a.period());
  const double loads = outputs * a.loads() + 1.0 * a.used_rows() * a.kept();
  // A thread has several, with 2 instructions for where each of them is.
  const double read = 1.0 * a.threads() * a.load_bytes();
  TileWork work;
  work.tiles = static_cast<double>(a.turns()) * static_cast<double>(a.all_blocks());
  work.cuda_cores = work.persistent = work.load_beside = true;
  // L1 has about a half of what strips below each other share.
  const double again = 1.0 * a.input_rows() / (a.rows * conv.stride_h);
  work.load.l2_bytes = read * outputs * (a.rows + conv.stride_w * a.rows * conv.stride_h * (1 + again) / 2);
  work.in_flight_bytes = read * a.ahead * a.loads();
  const double widened = conv.x_type == ElementType::f32 ? 0 : 1.0 * a.width * a.loads();
  work.multiply.instructions =
      warps * (120 + loads * 3.5 +
               outputs * (a.products() + 1.0 * a.width * a.rows + widened + (a.ahead - 1.0) * a.loads() + 8));
  work.multiply.wavefronts = warps * loads * a.load_words();
  work.stored_bytes = 4.0 * a.sums().words() / a.chunks() / static_cast<double>(a.turns());
  work.pieces = work.stored_bytes / 4 / a.channels();
  return work;
}

// ---- The search space ----

std::vector<int> lane_choices(int threads_of_all) {
  std::vector<int> choices;
  for (const int most : {128, 72, 36, 16})
    if (const int some = round_up(ceil_div(threads_of_all, ceil_div(threads_of_all, most)), 4);
        std::find(choices.begin(), choices.end(), some) == choices.end())
      choices.push_back(some);
  return choices;
}

// Every valid config.
std::vector<DepthwiseWeightGradientSm80> configs_of(const DepthwiseWeightGradientSm80& plain,
                                                    const Target& target) {
  std::vector<DepthwiseWeightGradientSm80> configs;
  const ConvExtents& conv = plain.conv;
  const auto add = [&](DepthwiseWeightGradientSm80 kernel) {
    if (!kernel.possible()) return;
    kernel.blocks = most_blocks(kernel, target);
    if (kernel.blocks < 1) return;
    kernel.blocks = lesser(kernel.blocks, 16);
    const long long room = 1LL * target.multiprocessors * kernel.blocks / kernel.chunks();
    const long long wanted = ceil_div(kernel.strips(), 1LL * kernel.workers);
    kernel.split = static_cast<int>(std::clamp(std::min(room, wanted), 1LL, 1LL << 16));
    // As few blocks as need no more turns.
    kernel.split = static_cast<int>(ceil_div(wanted, kernel.turns()));
    if (kernel.valid()) configs.push_back(kernel);
  };
  for (const int width : {1, 2, 4}) {
    if (width * plain.size() > 16 || conv.c % width != 0) continue;
    for (const int lanes : lane_choices(ceil_div(conv.c, width)))
      for (const int rows : {1, 2, 3, 4, 6, 7, 8}) {
        if (rows > conv.p) continue;
        for (const int sides : {1, 2, 4, 8}) {
          DepthwiseWeightGradientSm80 kernel = plain;
          kernel.width = width, kernel.lanes = lanes, kernel.rows = rows;
          kernel.columns = ceil_div(conv.q, sides);
          if (sides > 1 && kernel.columns < 4) continue;
          const int warps = 32 / gcd(lanes, 32);  // the least workers that are whole warps
          for (const int threads : {64, 128, 192, 256, 384}) {
            kernel.workers = round_up(ceil_div(threads, lanes), warps);
            if (kernel.threads() > threads + 96) continue;
            for (const int ahead : {1, 2}) {
              kernel.ahead = ahead;
              add(kernel);
            }
          }
        }
      }
  }
  return configs;
}

class DepthwiseWeightGradient final : public KernelAlgorithmOf<DepthwiseWeightGradientSm80> {
 public:
  DepthwiseWeightGradient() : KernelAlgorithmOf("depthwise_weight_gradient_sm80") {}

 private:
  // Every precision: fp32 products are at least as exact.
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    return first_refusal({needs_sm80(device), takes_gradients_of_weights(a), takes_layout(a, Layout::nhwc),
                          takes_depthwise(a), fits_extents(a)});
  }
  DepthwiseWeightGradientSm80 kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static DepthwiseWeightGradientSm80 plain_of(const ConvProblem& problem) {
    return {.conv = extents_of(problem), .w_type = element_type_of(problem.dtype.w)};
  }

  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    const DepthwiseWeightGradientSm80 least = plain_of(a);
    return fmt::format(
        "its least config has {} taps (at most {}), {} registers for them and what they meet, and {} "
        "products "
        "in straight code (at most {}), or an image of more than 2^30 numbers",
        least.taps(), DepthwiseWeightGradientSm80::kMostTaps, least.registers(),
        least.products() * least.period(), DepthwiseWeightGradientSm80::kMostProducts);
  }
  std::vector<DepthwiseWeightGradientSm80> configs(const Computed& a,
                                                   const DeviceInfo& device) const override {
    std::vector<Ranked<DepthwiseWeightGradientSm80>> ranked;
    const Target target = target_of(device);
    for (const DepthwiseWeightGradientSm80& kernel : configs_of(plain_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DepthwiseWeightGradientSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format(
          "width is 1, 2 or 4, divides the channels and is 16 bytes at most, lanes are a multiple "
          "of 4, and lanes times workers are whole warps of at most {} threads",
          DepthwiseWeightGradientSm80::kMostThreads));
    const Target target = target_of(device);
    if (kernel.valid() && stays_resident(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("{} products in straight code (this: {}), at most {} columns, {} rows and "
                    "a split of {}, {}",
                    DepthwiseWeightGradientSm80::kMostProducts, kernel.products() * kernel.period(),
                    kernel.conv.q, kernel.conv.p, kernel.strips(), needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const DepthwiseWeightGradientSm80& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, sums_arguments());
    add_up_behind(plan, kernel.partial_words(), blocks_of_fours(kernel.rank_fours(), kernel.split),
                  kAddThreads);
    return plan;
  }
  TileWork counted(const DepthwiseWeightGradientSm80& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& depthwise_weight_gradient_sm80() {
  return once([] { return DepthwiseWeightGradient(); });
}

}  // namespace convtune::cuda
