// `direct_stem_half`: first layers in half precision on compute capability 8.0 and up (direct_stem_half.cuh).
// Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_stem_half/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

bool has_wgmma(const DeviceInfo& device) {
  return static_cast<bool>(needs_sm90(device));
}

// Blocks of the grid: each keeps to its filters, and goes from tile to tile.
long long grid_of(const DirectStemHalf& kernel, int multiprocessors) {
  const long long room = std::max(1LL * multiprocessors * kernel.blocks / kernel.filter_blocks(), 1LL);
  return std::min(room, kernel.tiles()) * kernel.filter_blocks();
}

// A tile for the filters of a block. All warps load, multiply and store.
TileWork work_of(const DirectStemHalf& a) {
  const double strips = a.strips(), filters = a.filters, warps_at_once = 4;
  const double copies = 1.0 * a.tile_halves() / a.copy_halves();
  const double pair_loads = strips * warps_at_once * a.steps() * 4 * (a.whole_pairs() ? 1 : 2);
  // Windows of eight outputs beside each other, of which each lane of four loads a word.
  const double words = a.output_step() / 2.0, conflicts = words <= 6 ? 1 : 2;
  const double weights = a.wgmma ? 0 : strips * warps_at_once * a.steps() * filters / 16;  // ldmatrix
  const double outputs = strips * a.strip_outputs() * filters;
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.filter_blocks();
  work.persistent = true;
  work.wgmma = a.wgmma;
  work.load_beside = true;
  work.in_flight_bytes = (a.used_stages() - 1) * 2.0 * a.tile_halves();
  work.load.l2_bytes = 2.0 * a.planes() * a.tile_rows() * a.row_halves();
  work.multiply.products = strips * a.steps() * 4 * filters / 8;
  work.multiply.instructions = pair_loads * 1.5 + weights + (a.bulk() ? 0 : copies / 32 * 14) +
                               strips * warps_at_once * (60 + filters / 4) +
                               strips * warps_at_once * a.steps() * (a.wgmma ? 2 : filters / 8);
  work.multiply.wavefronts =
      pair_loads * conflicts + weights * 4 + (a.wgmma ? strips * a.steps() * filters / 4 : 0);
  work.multiply.waits = strips * warps_at_once / a.warps;
  const double residual = a.conv.residual;
  work.store.instructions =
      outputs / 32 * ((a.conv.nhwc ? 1.3 : 6) + 2.3 * residual) + strips * warps_at_once * 50 * residual;
  work.store.wavefronts = outputs / 32 * ((a.conv.nhwc ? 1.5 : 3) + residual);
  // Residuals that are in L2, or not yet.
  work.store.waits = strips * warps_at_once / a.warps * (a.prefetches_residual() ? 2 : 5) * residual;
  add_epilogue(work.store, a.conv, outputs);
  // In words of 4 bytes.
  store_in_pieces(work, outputs_of(a.conv) / work.tiles / 2,
                  a.conv.nhwc ? (a.filter_blocks() == 1 ? 1.0 * a.conv.q * a.conv.k : a.filters) / 2 : 8);
  return work;
}

std::vector<DirectStemHalf> stem_configs_of(const ConvExtents& conv, const Target& target, bool wgmma) {
  std::vector<DirectStemHalf> configs;
  const auto add = [&](const DirectStemHalf& kernel) {
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) configs.push_back(kernel);
  };
  for (const int filters : {16, 32, 48, 64, 96, 128}) {
    // A block wider than the filters, or one that leaves much of the last block idle, wastes products.
    if (filters > round_up(conv.k, 16) || ceil_div(conv.k, filters) * filters > 1.34 * round_up(conv.k, 16))
      continue;
    for (int rows = 1; rows <= std::min(conv.p, 32); ++rows) {
      // If another number of rows makes as many bands, the last of these would be short.
      if (rows > 1 && ceil_div(conv.p, ceil_div(conv.p, rows)) != rows) continue;
      for (const int warps : {4, 8, 12, 16})
        for (const int blocks : {1, 2, 3, 4, 5, 6})
          for (const int stages : {2, 3, 4})
            if (DirectStemHalf kernel{conv, filters, rows, warps, stages, blocks, wgmma};
                stages == 2 || kernel.bulk())
              add(kernel);
    }
  }
  return configs;
}

class DirectStemHalfAlgorithm final : public KernelAlgorithmOf<DirectStemHalf> {
 public:
  DirectStemHalfAlgorithm() : KernelAlgorithmOf("direct_stem_half") {}

 private:
  bool has_depth() const override { return true; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_half_frames(a), takes_one_group(a)});
        !support)
      return support;
    if (a.dilation_w != 1) return Support::no("it is for filters that are dense along the width");
    if (Support support = fits_extents(a); !support) return support;
    const DirectStemHalf least{.conv = extents_of(a)};
    if (least.steps() > DirectStemHalf::kMostSteps)
      return Support::no(fmt::format("it is for sums of few products: {} steps of 16 are more than {}",
                                     least.steps(), DirectStemHalf::kMostSteps));
    return Support::yes();
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return !stem_configs_of(extents_of(a), target_of(device), has_wgmma(device)).empty();
  }
  std::string why_none(const ConvProblem&, const DeviceInfo& device) const override {
    return fmt::format("no tile's input fits the {} bytes of a block beside the weights",
                       target_of(device).smem_per_block);
  }
  std::vector<DirectStemHalf> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectStemHalf>> ranked;
    const Target target = target_of(device);
    for (const DirectStemHalf& kernel : stem_configs_of(extents_of(a), target, has_wgmma(device)))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(grid_of(kernel, device.units))));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DirectStemHalf& kernel, const DeviceInfo& device) const override {
    if (kernel.wgmma && !has_wgmma(device)) return Support::no("wgmma=1 needs compute capability 9.0");
    if (!kernel.possible())
      return Support::no(
          "filters are a multiple of 16 up to 128, rows and columns no more than the output has, warps 4, 8, "
          "12 or 16, blocks 1 to 6");
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(needs_in_words(kernel, target));
  }
  LaunchPlan launch(const DirectStemHalf& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = kEpilogueArguments;
    arguments.emplace_back(kernel.conv.n);
    return plan_of(kernel, device, {static_cast<unsigned>(grid_of(kernel, device.units))},
                   std::move(arguments));
  }
  TileWork counted(const DirectStemHalf& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const DirectStemHalf& a) const override {
    return 2.0 * a.strips() * a.strip_outputs() * a.filters * a.filter_blocks() * a.steps() * 16 *
           static_cast<double>(a.tiles());
  }
};

}  // namespace

const Algorithm& direct_stem_half() {
  return once([] { return DirectStemHalfAlgorithm(); });
}

}  // namespace convtune::cuda
