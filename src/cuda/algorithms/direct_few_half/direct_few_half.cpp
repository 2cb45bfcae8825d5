// `direct_few_half`: few filters in half precision, channels last, on tensor cores of compute capability 8.0
// and up (direct_few_half.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_few_half/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

constexpr std::int64_t kFewFilters = 8;

// A tile for all filters. All warps load, multiply and store.
TileWork work_of(const DirectFewHalf& a) {
  const ConvExtents& conv = a.conv;
  const double tiles_of_frame = 1.0 * a.bands() * a.sides();
  const double rows = read_inside(
      a.bands(), [&](int band) { return a.first_row(band); }, a.input_rows(), conv.h);
  const double columns = read_inside(
      a.sides(), [&](int side) { return a.first_column(side); }, a.input_columns(), conv.w);
  const double pixels = conv.t * rows * columns / tiles_of_frame;
  const double weights = 1.0 * a.turns() * a.weight_bytes();
  const double pieces = 1.0 * a.turns() * a.input_rows() * a.input_columns() * a.pieces() / 32;
  const double copies = pieces + weights / 512;
  // Counts for one warp, over all of its steps.
  const double steps = 1.0 * conv.t * ceil_div(conv.c, 16) / a.parts, warps = a.warps();
  const double loads = steps * a.met_rows() * a.sixteens, weight_loads = steps * conv.r * a.eights();
  const double sums = 4.0 * a.rows * a.sixteens * a.eights();
  const double outputs = 1.0 * a.tile_rows() * a.tile_columns() * conv.k;
  const bool singly = conv.c % 8 != 0;
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.load_beside = a.turns() > 1;
  work.load.instructions = copies * (singly ? 60 : 6) + 20.0 * a.turns() * warps;
  work.load.wavefronts = 4 * copies;
  work.load.l2_bytes = 2 * pixels * conv.c + weights;
  work.in_flight_bytes = work.load.l2_bytes * a.stages / a.turns();
  work.multiply.products = warps * steps * a.products();
  work.multiply.instructions = warps * (steps * (a.products() + 8) + loads + weight_loads);
  work.multiply.wavefronts = warps * (4 * loads + 2 * weight_loads);
  work.multiply.waits = a.turns() * (a.turns() > a.stages ? 2 : 1);
  work.store.instructions = warps * sums + outputs / 32 * (24.0 + 2 * conv.s * a.parts + 4 * conv.residual);
  work.store.wavefronts = warps * sums + outputs / 32 * (1.5 * conv.s * a.parts + 2);
  work.store.waits = 3;
  add_epilogue(work.store, conv, outputs);
  // In words of 4 bytes.
  store_in_pieces(work, outputs_of(conv) / work.tiles / 2, 0.5 * a.tile_columns() * conv.k);
  return work;
}

std::vector<DirectFewHalf> few_configs_of(const ConvExtents& conv, const Target& target) {
  std::vector<DirectFewHalf> configs;
  const auto add = [&](DirectFewHalf kernel) {
    kernel.blocks = 1;
    if (!kernel.possible()) return;
    kernel.blocks = std::min(most_blocks(kernel, target), 32);
    if (kernel.blocks >= 1 && kernel.valid(target.smem_per_block)) configs.push_back(kernel);
  };
  const auto with_stages = [&](DirectFewHalf kernel) {
    for (const int channels : {16, 32, 64, 128}) {
      if (channels > 16 && channels >= 2 * conv.c) break;
      kernel.channels = channels;
      for (const int parts : {1, 2}) {
        kernel.parts = parts;
        if (parts > kernel.steps() || kernel.warps() > DirectFewHalf::kMostWarps) continue;
        for (const int stages : {1, 2, 3, 4}) {
          if (stages > kernel.turns() || (stages == 1 && kernel.turns() > 1)) continue;
          kernel.stages = stages;
          add(kernel);
        }
      }
    }
  };
  for (const int rows : {1, 2, 4, 8})
    for (const int sixteens : {1, 2, 3, 4}) {
      DirectFewHalf kernel{.conv = conv, .rows = rows, .sixteens = sixteens};
      if (rows > 1 && rows >= 2 * conv.p) continue;
      if (kernel.products() > DirectFewHalf::kMostProducts || kernel.registers() > 255) continue;
      for (int across = 1; across <= DirectFewHalf::kMostWarps; ++across) {
        kernel.across = across;
        if (kernel.most_columns() <= 0) continue;
        // Warps beside each other that fewer could do without, or that have hardly any column.
        const int columns = 16 * sixteens * across;
        if (across > 1 && columns - 16 * sixteens >= kernel.input_columns()) continue;
        if (columns - kernel.input_columns() > columns / 3 + 8) continue;
        for (const int down : {1, 2, 4, 8}) {
          if (down > 1 && rows * down >= 2 * conv.p) break;
          if (across * down > DirectFewHalf::kMostWarps) break;
          if (across * down < 4 && rows * down < conv.p && kernel.sides() > 1) continue;
          kernel.down = down;
          with_stages(kernel);
        }
      }
    }
  if (configs.empty()) add(DirectFewHalf::least(conv, target.smem_per_block));
  return configs;
}

class DirectFewHalfAlgorithm final : public KernelAlgorithmOf<DirectFewHalf> {
 public:
  DirectFewHalfAlgorithm() : KernelAlgorithmOf("direct_few_half") {}

 private:
  bool has_depth() const override { return true; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_half_frames(a), takes_one_group(a)});
        !support)
      return support;
    // Between conversions x would be moved three times as often as it is read.
    if (a.layout != Layout::nhwc) return Support::no("it is for NHWC alone");
    if (a.k > kFewFilters)
      return Support::no(fmt::format("it is for at most {} filters, and these are {}", kFewFilters, a.k));
    return fits_extents(a);
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    const long long smem = target_of(device).smem_per_block;
    return DirectFewHalf::least(extents_of(a), smem).valid(smem);
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo& device) const override {
    const long long smem = target_of(device).smem_per_block;
    const auto least = DirectFewHalf::least(extents_of(a), smem);
    return fmt::format(
        "its least config needs {} bytes of shared memory (of {}), {} registers (of {}), a window of {} rows "
        "(of {}), {} columns of filters (of {}), whose rows reach over {} pixels (of {}), and {} products in "
        "straight code (of {}), or an image of more than 2^30 numbers, or of 2^31 with the padding above it",
        least.smem_bytes(), smem, least.registers(), least.register_limit(), least.window_rows(),
        DirectFewHalf::kMostWindow, least.columns(), DirectFewHalf::kMostColumns, least.reach(),
        16 * DirectFewHalf::kMostSixteens * DirectFewHalf::kMostWarps, least.products(),
        DirectFewHalf::kMostProducts);
  }
  std::vector<DirectFewHalf> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectFewHalf>> ranked;
    const Target target = target_of(device);
    for (const DirectFewHalf& kernel : few_configs_of(extents_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.tiles())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DirectFewHalf& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          "channels are 16, 32, 64 or 128, stages no more than the sum has, parts no more than sixteens of "
          "channels, and 16 warps, which have a whole row of the filter");
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("{} products in straight code (this: {}), {}, and warps that read at most a stage of "
                    "weights beyond their tile",
                    DirectFewHalf::kMostProducts, kernel.products(), needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const DirectFewHalf& kernel, const DeviceInfo& device) const override {
    return plan_of(kernel, device, {static_cast<unsigned>(kernel.tiles())}, kEpilogueArguments);
  }
  TileWork counted(const DirectFewHalf& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const DirectFewHalf& a) const override {
    return 2.0 * 2048 * a.warps() / a.parts * a.products() * a.conv.t * ceil_div(a.conv.c, 16) *
           static_cast<double>(a.tiles());
  }
};

}  // namespace

const Algorithm& direct_few_half() {
  return once([] { return DirectFewHalfAlgorithm(); });
}

}  // namespace convtune::cuda
