// `weight_gradient_planes_sm80`: gradients of the weights of 1x1 layers in NCHW, in half precision and TF32,
// on tensor cores of compute capability 8.0 and up (weight_gradient_planes_sm80.cuh). Which problems it
// takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_planes_sm80/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

// A chunk of pixels, of a tile of dw.
TileWork work_of(const WeightGradientPlanesSm80& a) {
  const double rows = a.filters + a.channels, warps = a.threads() / 32.0, steps = a.kRowBytes / 32.0;
  const double of_warp = 1.0 * a.sixteens() * (a.eights() + (a.bias ? 1.0 / a.warps_n : 0));
  const double loads = a.sixteens() + a.eights() / 2.0;
  const bool tf32 = a.size() == 4;
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * static_cast<double>(a.chunks());
  work.persistent = work.load_beside = true;
  work.load.instructions = rows * (a.kRowBytes / a.copied_bytes()) / 32 * 16;
  work.load.wavefronts = rows;
  const double real = (std::min(a.filters, a.conv.k) + std::min(a.channels, a.conv.c)) / rows;
  work.load.l2_bytes = rows * real * a.plane() * a.size() / a.plane_chunks();
  work.load.waits = 1;
  work.in_flight_bytes = (a.stages - 1) * work.load.l2_bytes;
  work.multiply.products = warps * steps * of_warp;
  work.multiply.instructions = warps * (30 + steps * (of_warp + loads * (tf32 ? 6 : 2) + 4));
  work.multiply.wavefronts = warps * steps * 4 * loads;
  work.multiply.waits = 1;
  work.stored_bytes = 16.0 * a.tile_fours() * a.split / static_cast<double>(a.chunks());
  work.pieces = work.stored_bytes / 512;
  count_sums(work, static_cast<double>(a.partial_words()),
             1.0 * size_of(a.w_type) * static_cast<double>(a.conv.weights()));
  return work;
}

// Every valid config worth a try.
std::vector<WeightGradientPlanesSm80> configs_of(const WeightGradientPlanesSm80& plain,
                                                 const Target& target) {
  std::vector<WeightGradientPlanesSm80> configs;
  const auto add = [&](WeightGradientPlanesSm80 kernel) {
    if (!kernel.possible() || kernel.smem_bytes() > target.smem_per_block) return;
    kernel.blocks = lesser(most_blocks(kernel, target), 8);
    if (kernel.blocks < 1) return;
    const long long room = std::max(1LL * target.multiprocessors * kernel.blocks / kernel.tiles(), 1LL);
    kernel.split =
        static_cast<int>(std::min({room, kernel.chunks(), 1LL * WeightGradientPlanesSm80::kMostSplit}));
    if (kernel.valid(target.smem_per_block)) configs.push_back(kernel);
  };
  WeightGradientPlanesSm80 kernel = plain;
  for (const int filters : {16, 32, 64, 128, 256})
    for (const int channels : {16, 32, 64, 128, 256}) {
      if (filters >= 2 * round_up(plain.conv.k, 16) || channels >= 2 * round_up(plain.conv.c, 16)) continue;
      for (const int warps_m : {1, 2, 4, 8})
        for (const int warps_n : {1, 2, 4, 8}) {
          const int warps = warps_m * warps_n;
          if (warps > 16 || (warps < 4 && filters * channels > 2048)) continue;
          for (const int stages : {2, 3, 4, 6}) {
            kernel.filters = filters, kernel.channels = channels;
            kernel.warps_m = warps_m, kernel.warps_n = warps_n, kernel.stages = stages;
            add(kernel);
          }
        }
    }
  return configs;
}

class WeightGradientPlanes final : public KernelAlgorithmOf<WeightGradientPlanesSm80> {
 public:
  WeightGradientPlanes() : KernelAlgorithmOf("weight_gradient_planes_sm80") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_gradients_of_weights(a),
                                         takes_layout(a, Layout::nchw), takes_one_group(a), fits_extents(a)});
        !support)
      return support;
    if (a.dtype.x == DType::f32)
      if (Support support = takes_tf32(a); !support) return support;
    if (a.r * a.s != 1 || a.stride_h * a.stride_w != 1 || a.pad_top != 0 || a.pad_left != 0 || a.p() != a.h ||
        a.q() != a.w)
      return Support::no("it is for 1x1 filters, without strides or padding");
    return Support::yes();
  }
  WeightGradientPlanesSm80 kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static WeightGradientPlanesSm80 plain_of(const ConvProblem& problem) {
    return {.conv = extents_of(problem), .w_type = element_type_of(problem.dtype.w), .bias = problem.bias};
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "its pixels or tiles are too many to be counted in 30 bits";
  }
  std::vector<WeightGradientPlanesSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<WeightGradientPlanesSm80>> ranked;
    const Target target = target_of(device);
    for (const WeightGradientPlanesSm80& kernel : configs_of(plain_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }
  Support takes_kernel(const WeightGradientPlanesSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format(
          "filters are a multiple of 16 warps_m and channels of 16 warps_n, of at most 16 warps with {} sums "
          "a thread",
          WeightGradientPlanesSm80::kMostSums));
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("a split of at most {}, {}", kernel.chunks(), needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const WeightGradientPlanesSm80& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, sums_arguments());
    add_up_behind(plan, kernel.partial_words(), blocks_of_fours(kernel.rank_fours(), kernel.split),
                  kAddThreads);
    return plan;
  }
  TileWork counted(const WeightGradientPlanesSm80& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& weight_gradient_planes_sm80() {
  return once([] { return WeightGradientPlanes(); });
}

}  // namespace convtune::cuda
