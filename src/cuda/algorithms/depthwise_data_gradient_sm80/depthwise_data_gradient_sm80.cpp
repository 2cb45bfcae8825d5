// `depthwise_data_gradient_sm80`: gradients of x of depthwise layers with strides, and so their transposed
// layers, of every type in both layouts, on CUDA cores, compute capability 8.0 and up
// (depthwise_data_gradient_sm80.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/depthwise_data_gradient_sm80/config.h"
#include "cuda/algorithms/gradients.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

Support takes_gradient_of_x(const ConvProblem& problem) {
  const Abilities& abilities = once([] {
    Abilities of_x = kHalfAbilities;
    of_x.types.push_back(DType::f32);
    of_x.directions = {Direction::backward_data};
    return of_x;
  });
  return within(abilities, problem);
}

// A block's strips. What strips beside each other share of dy is found in L1, half of what those below share.
TileWork work_of(const DepthwiseDataGradientSm80& a) {
  const ConvExtents& conv = a.conv;
  const double warps = a.warps, width = a.width, passes = a.passes, window = a.window();
  const double outputs = 1.0 * a.rows * a.columns * width, runs = outputs / a.run();
  const double widened = a.size() == 4 ? 0 : window * width, thread = 32 * warps * passes;
  const double own = 1.0 * a.rows * a.columns / (conv.stride_h * conv.stride_w);  // dy of a channel, no halo
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.cuda_cores = work.load_beside = true;
  work.load.instructions =
      warps * (40 + a.taps() * width / std::min(a.width, 4) + passes * (20 + window * 5));
  work.load.wavefronts = warps * passes * window * std::max(a.loaded_bytes() / 4.0, 1.0);
  const double again = std::max(1.0, 1.0 * a.down().count() * conv.stride_h / a.rows);
  work.load.l2_bytes = thread * a.loaded_bytes() * own * (1 + again) / 2;
  work.in_flight_bytes = 32 * warps * a.loaded_bytes() * own;
  work.load.waits = passes;
  work.multiply.instructions = warps * passes * (widened + a.products());
  work.store.instructions = warps * passes * (runs * 6 + outputs * (a.size() == 4 ? 1 : 1.5));
  work.store.wavefronts = warps * passes * runs * std::max(a.stored_bytes() / 4.0, 1.0);
  add_epilogue(work.store, conv, thread * outputs);
  if (conv.residual) work.store.l2_bytes += thread * outputs * a.size(), work.store.waits += passes;
  const double all = 1.0 * conv.n * conv.c * conv.h * conv.w / work.tiles;
  const double beside = conv.nhwc ? conv.c : conv.w;
  store_in_pieces(work, all, beside, a.size());
  return work;
}

// Every valid config.
std::vector<DepthwiseDataGradientSm80> configs_of(const ConvExtents& conv, const Target& target) {
  std::vector<DepthwiseDataGradientSm80> configs;
  for (const int width : {1, 2, 4, 8})
    for (const int rows : {1, 2, 3, 4})
      for (const int columns : {1, 2, 3, 4, 8})
        for (const int passes : {1, 2, 4, 8, 16})
          for (const int warps : {2, 4, 8}) {
            DepthwiseDataGradientSm80 kernel{.conv = conv, .width = width, .passes = passes, .warps = warps};
            // Multiples of the strides, and with strides of 1 as many.
            kernel.rows = rows * conv.stride_h, kernel.columns = columns * conv.stride_w;
            if (columns == 8 && conv.nhwc) continue;
            if (passes > 1 && kernel.rows * passes >= conv.h + kernel.rows) continue;
            if (!kernel.possible()) continue;
            kernel.blocks = lesser(most_blocks(kernel, target), 16);
            if (kernel.blocks >= 1 && kernel.valid()) configs.push_back(kernel);
          }
  return configs;
}

class DepthwiseDataGradient final : public KernelAlgorithmOf<DepthwiseDataGradientSm80> {
 public:
  DepthwiseDataGradient() : KernelAlgorithmOf("depthwise_data_gradient_sm80") {}

 private:
  // Every precision: fp32 products are at least as exact.
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (a.direction == Direction::forward)
      return Support::no("it is for gradients of x with strides: without, forward's kernels compute them");
    return first_refusal({needs_sm80(device), takes_gradient_of_x(a), takes_depthwise(a), fits_extents(a)});
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    return fmt::format(
        "it is for strides of up to {}, at most {} taps that lie within {} numbers of dy and need no more "
        "registers than a thread has, and images of less than 2^30 numbers: strides of {} and {}, and {} "
        "taps "
        "with dilations of {} and {}, are not",
        DepthwiseDataGradientSm80::kMostStrip, DepthwiseDataGradientSm80::kMostWeights,
        DepthwiseDataGradientSm80::kMostWindow, a.stride_h, a.stride_w, a.r * a.s, a.dilation_h,
        a.dilation_w);
  }
  std::vector<DepthwiseDataGradientSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DepthwiseDataGradientSm80>> ranked;
    const Target target = target_of(device);
    for (const DepthwiseDataGradientSm80& kernel : configs_of(extents_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DepthwiseDataGradientSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format(
          "rows and columns are multiples of the strides, up to {}, width a power of 2 that divides the "
          "channels, 1 in NCHW, of 16 bytes at most, with at most {} weights of a thread and {} products in "
          "straight code",
          DepthwiseDataGradientSm80::kMostStrip, DepthwiseDataGradientSm80::kMostWeights,
          DepthwiseDataGradientSm80::kMostProducts));
    const Target target = target_of(device);
    if (kernel.valid() && stays_resident(kernel, target)) return Support::yes();
    return Support::no(needs_in_words(kernel, target));
  }
  LaunchPlan launch(const DepthwiseDataGradientSm80& kernel, const DeviceInfo& device) const override {
    return plan_of(kernel, device, {static_cast<unsigned>(kernel.all_blocks())}, kEpilogueArguments);
  }
  TileWork counted(const DepthwiseDataGradientSm80& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& depthwise_data_gradient_sm80() {
  return once([] { return DepthwiseDataGradient(); });
}

}  // namespace convtune::cuda
