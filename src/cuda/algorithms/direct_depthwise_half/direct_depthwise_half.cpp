// `direct_depthwise_half`: depthwise layers in half precision, channels last, on tensor cores of compute
// capability 8.0 and up (direct_depthwise_half.cuh). Which problems it takes, its search space, and what
// runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_depthwise_half/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

// Smaller filters wait for memory: direct_depthwise_sm80 takes 7 % less for 5x5, a quarter less for 3x3.
constexpr std::int64_t kLeastTaps = 26;

// The factor by which a block's loads are slower where shared memory leaves L1 the least that it can, an
// eighth of both: on a layer of 56 x 56 x 96, 14 rows with a residual took 87 us in three blocks of 211 KB,
// 12 rows 68 us in three of 187.
constexpr double kLittleCache = 1.25;
bool leaves_little_cache(const DirectDepthwiseHalf& a, const Target& target) {
  return a.blocks * (a.smem_bytes() + target.smem_reserved) > target.smem_per_multiprocessor * 7 / 8;
}

// A tile is loaded, multiplied and stored by all warps, in turns.
TileWork work_of(const DirectDepthwiseHalf& a) {
  const ConvExtents& conv = a.conv;
  const double rows = read_inside(
      a.levels(), [&](int level) { return a.first_row(level); }, a.input_rows(), conv.h);
  const double columns = read_inside(
      a.sides(), [&](int side) { return a.first_column(side); }, a.read_columns(), conv.w);
  const double read = a.images * rows * columns * a.octets / (1.0 * a.levels() * a.sides());
  // Eights of channels of two pixels, by warps.
  const double eights = 1.0 * a.images * a.input_rows() * a.column_pairs() * a.octets / 32;
  const double pairs = round_up(a.pairs(), a.warps), row_loads = 2.0 * a.strip_rows();
  const double stored = 1.0 * a.tile_pixels() * a.octets / 32;
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.load.instructions = eights * 30;
  // Words, and the lines that L1 looks up for eights of several pixels: there are more of fewer channels.
  work.load.wavefronts = eights * (8 + 64.0 / a.octets);
  work.load.l2_bytes = 16 * read + 4.0 * a.channels() * a.channel_words();
  work.load.waits = ceil_div(a.thread_loads(), a.loads_together());
  work.in_flight_bytes = std::min(32.0 * a.threads() * a.loads_together(), work.load.l2_bytes);
  if (conv.residual) {
    work.load.instructions += stored * 12;
    work.load.wavefronts += stored * (4 + 32.0 / a.octets);
    work.load.l2_bytes += 512 * stored;
    work.load.waits += ceil_div(a.thread_residuals(), a.residuals_together());
  }
  work.multiply.products = pairs * a.products();
  work.multiply.instructions =
      pairs * (40 + 8.0 * conv.r + row_loads + a.products() + a.rows * (conv.residual ? 34 : 30));
  work.multiply.wavefronts =
      pairs * (row_loads * (4 + a.pitch().conflicts) + (conv.residual ? 8.0 : 4.0) * a.rows + 2.0 * conv.r);
  work.multiply.waits = 1 + 2 * pairs / a.warps;  // for the last sums
  add_epilogue(work.multiply, conv, 256 * stored);
  work.store.instructions = stored * 8;
  work.store.wavefronts = stored * (4 + 32.0 / a.octets);
  // In words of 4 bytes. An odd number of eights leaves sectors in halves.
  store_in_pieces(work, outputs_of(conv) / work.tiles / 2,
                  a.chunks() == 1 ? 0.5 * std::min(a.tile_columns(), conv.q) * conv.c : 4.0 * a.octets);
  return work;
}

std::vector<DirectDepthwiseHalf> configs_of(const ConvExtents& conv, const Target& target) {
  std::vector<DirectDepthwiseHalf> configs;
  const auto add = [&](DirectDepthwiseHalf kernel) {
    if (!kernel.possible()) return;
    kernel.blocks = most_blocks(kernel, target);
    if (kernel.blocks >= 1 && kernel.valid(target.smem_per_block)) configs.push_back(kernel);
  };
  const auto idle = [](int tile, int extent) { return ceil_div(extent, tile) * tile > extent + extent / 7; };
  const int all_across = ceil_div(conv.q, 8), all_octets = ceil_div(conv.c, 8);
  for (const int parts : {1, 2, 4, 8}) {
    const int across = ceil_div(all_across, parts);
    if (across > DirectDepthwiseHalf::kStrips) continue;
    const int slots_down = DirectDepthwiseHalf{.conv = conv, .across = across}.slots_down();
    for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 14}) {
      const int all_bands = ceil_div(conv.p, rows);
      for (const int bands : {1, 2, 3, 4, 8, 16}) {
        if (bands > slots_down || bands > all_bands || idle(rows * bands, conv.p)) continue;
        // Several images where a tile is all of one.
        const bool whole = across == all_across && bands == all_bands;
        for (const int images : {1, 2, 4, 8, 16}) {
          if (images > 1 && (!whole || images > conv.n || images * bands > slots_down)) continue;
          for (const int octets : {1, 2, 3, 4, 6, 8})
            if (octets <= all_octets && !idle(octets, all_octets))
              for (const int warps : {2, 4, 8, 16})
                if (4 * octets % warps == 0)
                  add({.conv = conv,
                       .rows = rows,
                       .bands = bands,
                       .across = across,
                       .images = images,
                       .octets = octets,
                       .warps = warps});
        }
      }
    }
  }
  if (configs.empty()) add(DirectDepthwiseHalf::least(conv));
  return configs;
}

class DirectDepthwiseHalfAlgorithm final : public KernelAlgorithmOf<DirectDepthwiseHalf> {
 public:
  DirectDepthwiseHalfAlgorithm() : KernelAlgorithmOf("direct_depthwise_half") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_half(a), takes_layout(a, Layout::nhwc),
                                         takes_depthwise(a), takes_channels_in_eights(a)});
        !support)
      return support;
    if (a.r > DirectDepthwiseHalf::kMostFilter || a.s > DirectDepthwiseHalf::kMostFilter)
      return Support::no(fmt::format("it is for filters of at most {0}x{0}, and this is {1}x{2}",
                                     DirectDepthwiseHalf::kMostFilter, a.r, a.s));
    if (a.r * a.s < kLeastTaps)
      return Support::no(
          fmt::format("it is for filters of at least {} taps, and these have {}", kLeastTaps, a.r * a.s));
    if (a.stride_w != 1 || a.dilation_h != 1 || a.dilation_w != 1)
      return Support::no("it is for columns of stride 1, without dilation");
    return fits_extents(a);
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return DirectDepthwiseHalf::least(extents_of(a)).valid(target_of(device).smem_per_block);
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    return fmt::format("an image of {}x{}x{} is too large, or {} blocks are", a.h, a.w, a.c,
                       DirectDepthwiseHalf::least(extents_of(a)).all_blocks());
  }
  std::vector<DirectDepthwiseHalf> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectDepthwiseHalf>> ranked;
    const Target target = target_of(device);
    for (const DirectDepthwiseHalf& kernel : configs_of(extents_of(a), target)) {
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
      if (leaves_little_cache(kernel, target)) ranked.back().cost *= kLittleCache;
    }
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DirectDepthwiseHalf& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format("{} strips at most, and {} pairs of channels (this: {}) for its warps",
                                     DirectDepthwiseHalf::kStrips, kernel.pairs(), kernel.warps));
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(fmt::format("{} products in straight code (this: {}), {}",
                                   DirectDepthwiseHalf::kMostProducts, kernel.products(),
                                   needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const DirectDepthwiseHalf& kernel, const DeviceInfo& device) const override {
    return plan_of(kernel, device, {static_cast<unsigned>(kernel.all_blocks())}, kEpilogueArguments);
  }
  TileWork counted(const DirectDepthwiseHalf& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& direct_depthwise_half() {
  return once([] { return DirectDepthwiseHalfAlgorithm(); });
}

}  // namespace convtune::cuda
