// `direct_grouped_half`: few channels a group in half precision, channels last, on tensor cores of compute
// capability 8.0 and up (direct_grouped_half.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_grouped_half/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMostGroupChannels = 128;

// Blocks of the grid: with several stages each keeps to its filters, and goes from tile to tile.
long long grid_of(const DirectGroupedHalf& kernel, int multiprocessors) {
  if (kernel.stages == 1) return kernel.tiles();
  const long long room = std::max(1LL * multiprocessors * kernel.blocks / kernel.chunks(), 1LL);
  return std::min(room * kernel.chunks(), kernel.tiles());
}

// A tile of one image. All warps load, multiply and store.
TileWork work_of(const DirectGroupedHalf& a) {
  const ConvExtents& conv = a.conv;
  const double rows = read_inside(
      a.bands(), [&](int band) { return a.first_row(band); }, a.input_rows(), conv.h);
  const double columns = read_inside(
      a.sides(), [&](int side) { return a.first_column(side); }, a.input_columns(), conv.w);
  const double frames = conv.t, copies = frames * a.input_rows() * a.input_columns() * a.pieces() / 32;
  const double eights = a.filters / 8, weights = 4.0 * eights * a.eight_words();
  // The work of a strip: products of all filters, and what all warps load for them.
  const double doubles = frames * eights * a.span() * a.double_products();
  const double singles = frames * eights * a.span() * a.single_products();
  const double sets = frames * a.parts() * (a.shared() ? 1 : a.eights) * a.span();
  const double loads = sets * (a.double_loads() + a.single_loads());
  const double loaded = sets * (4.0 * a.double_loads() + 2.0 * a.single_loads());
  const double weight_loads = a.kept() ? 0 : frames * eights * a.span() * conv.s * a.pairs();
  const double twos = a.depth() * eights;  // products of 16 outputs by 8 filters
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.persistent = work.load_beside = a.stages > 1;
  work.load.instructions = copies * 9;
  work.load.wavefronts = 4 * copies;
  work.load.l2_bytes =
      16 * frames * rows * columns * a.pieces() / (1.0 * a.bands() * a.sides()) + (a.kept() ? 0 : weights);
  work.in_flight_bytes = work.load.l2_bytes;
  work.multiply.products = a.strips() * (doubles + singles / 2);
  work.multiply.instructions = a.strips() * (doubles + singles + loads + weight_loads + 20.0 * a.parts());
  work.multiply.wavefronts = a.strips() * (loaded + 2 * weight_loads);
  work.multiply.waits = 1.0 * ceil_div(a.strips(), a.strip_warps());
  work.store.instructions = a.strips() * twos * (conv.residual ? 30 : 20);
  work.store.wavefronts = a.strips() * twos * (conv.residual ? 8 : 6);
  add_epilogue(work.store, conv, a.strips() * twos * 128);
  if (conv.residual) {  // pieces of few eights are few bytes of a line each
    work.store.wavefronts += 16.0 / a.eights * a.strips() * twos;
    work.store.waits += 6.0 * ceil_div(a.strips(), a.strip_warps());
  }
  // In words of 4 bytes. An odd number of eights leaves sectors in halves.
  const bool between = conv.lies.between();
  const double beside = conv.lies.residues() > 1 ? lesser(a.filters, conv.group_results()) : a.filters;
  const double whole = between ? beside : a.chunks() == 1 ? 1.0 * a.tile_columns() * conv.k : a.filters;
  if (between) work.store.instructions += 10.0 * a.strips() * a.rows * eights;
  store_in_pieces(work, outputs_of(conv) / work.tiles / 2, (a.eights % 2 == 0 ? whole : 8.0 * a.eights) / 2);
  return work;
}

std::vector<DirectGroupedHalf> configs_of(const ConvExtents& conv, const Target& target) {
  std::vector<DirectGroupedHalf> configs;
  const auto valid = [&](DirectGroupedHalf& kernel) {
    kernel.blocks = 1;
    if (!kernel.possible()) return false;
    kernel.blocks = most_blocks(kernel, target);
    return kernel.blocks >= 1 && kernel.valid(target.smem_per_block);
  };
  // Blocks of one tile each begin together, and load, multiply and store in step. Where there are more than
  // one round of them, loading the next tile meanwhile takes a fifth less.
  const auto add = [&](DirectGroupedHalf kernel) {
    if (!valid(kernel)) return;
    DirectGroupedHalf ahead = kernel;
    ahead.stages = 2;
    const bool rounds = kernel.tiles() > 1LL * target.multiprocessors * kernel.blocks;
    configs.push_back(rounds && valid(ahead) ? ahead : kernel);
  };
  const auto idle = [&](int tile, int extent) {
    return ceil_div(extent, tile) * tile > round_up(extent, 8) + extent / 7;
  };
  for (const int eights : {1, 2, 3, 4, 5, 7, 8}) {
    const DirectGroupedHalf some{.conv = conv, .filters = 8 * eights, .eights = eights};
    if (8 * eights >= conv.k + 8 || (eights > 4 && !some.shared()) ||
        (eights % 2 == 1 && eights > 1 && !some.shared()))
      continue;
    for (const int parts : {1, 2, 4, 8}) {
      const int filters = 8 * eights * parts;
      if (filters > DirectGroupedHalf::kMostFilters ||
          ceil_div(conv.k, filters) * filters > conv.k + conv.k / 7 + 8)
        continue;
      for (const int rows : {2, 4, 6, 8, 14}) {
        if (rows > conv.p + 1 || (idle(rows, conv.p) && rows > 2)) continue;
        for (const int across : parts_of(ceil_div(conv.q, 8)))
          for (const int down : parts_of(ceil_div(conv.p, rows))) {
            if (rows * down > 56 || (down > 1 && idle(rows * down, conv.p))) continue;
            for (const int warps : {4, 8, 16})
              if (warps % parts == 0 && warps / parts <= down * across)
                add({conv, rows, down, across, filters, eights, warps});
          }
      }
    }
  }
  if (configs.empty()) add(DirectGroupedHalf::least(conv));
  return configs;
}

class DirectGroupedHalfAlgorithm final : public KernelAlgorithmOf<DirectGroupedHalf> {
 public:
  DirectGroupedHalfAlgorithm() : KernelAlgorithmOf("direct_grouped_half") {}

 private:
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  bool has_depth() const override { return true; }
  bool stores_between() const override { return true; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_half_frames(a)}); !support) return support;
    if (a.groups == 1) return Support::no("it is for several groups");
    // Seven of eight products would be zeros: direct_depthwise_sm80 takes 10 to 20 % less.
    if (a.c == a.groups && a.k == a.groups) return Support::no("it is for more than one filter a channel");
    if (a.c / a.groups > kMostGroupChannels)
      return Support::no(fmt::format("it is for at most {} channels a group, and these are {}",
                                     kMostGroupChannels, a.c / a.groups));
    return fits_extents(a);
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return DirectGroupedHalf::least(extents_of(a)).valid(target_of(device).smem_per_block);
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo& device) const override {
    const auto least = DirectGroupedHalf::least(extents_of(a));
    return fmt::format(
        "its least config needs {} bytes of shared memory (of {}), a window of {} rows (of {}) and {} taps "
        "(of {})",
        least.smem_bytes(), target_of(device).smem_per_block, least.window_rows(),
        DirectGroupedHalf::kMostWindow, least.taps(), DirectGroupedHalf::kMostTaps);
  }
  std::vector<DirectGroupedHalf> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectGroupedHalf>> ranked;
    const Target target = target_of(device);
    for (const DirectGroupedHalf& kernel : configs_of(extents_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(grid_of(kernel, device.units))));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DirectGroupedHalf& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          "rows are an even number, filters a multiple of 8 times eights, warps of filters / (8 * eights)");
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(fmt::format("{} products in straight code (this: {}), {}, and a strip for each warp",
                                   DirectGroupedHalf::kMostProducts, kernel.products(),
                                   needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const DirectGroupedHalf& kernel, const DeviceInfo& device) const override {
    return plan_of(kernel, device, {static_cast<unsigned>(grid_of(kernel, device.units))},
                   kEpilogueArguments);
  }
  TileWork counted(const DirectGroupedHalf& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& direct_grouped_half() {
  return once([] { return DirectGroupedHalfAlgorithm(); });
}

}  // namespace convtune::cuda
