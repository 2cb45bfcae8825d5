// `direct_body_sm90`: many channels on compute capability 9.0 (direct_body_sm90.cuh).
// Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_body_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "problem/activation.h"

namespace convtune::cuda {
namespace {

// The kernel with as many stages of weights as there is room for.
DirectBodySm90 with_weight_stages(DirectBodySm90 kernel) {
  if (kernel.possible()) kernel.weight_stages = kernel.most_weight_stages(sm90_smem_per_block());
  return kernel;
}
// The share of a sum's blocks that is not left out, where they are frames of padding: of tiles on average,
// which some frames of a long volume stand for.
double frames_share(const DirectBodySm90& a) {
  constexpr int kFrames = 256;
  if (!a.skips_frames()) return 1;
  const int more = static_cast<int>(a.block_positions() / a.image_positions() / a.strips);
  int count = 0, frames = 0;
  for (int frame = 0; frame < a.conv.z; frame += ceil_div(a.conv.z, kFrames), ++count)
    frames += a.frames_of(frame, lesser(frame + more, a.conv.z - 1)).count();
  return 1.0 * frames / count / a.conv.t;
}

// Clock cycles of the busiest multiprocessor, roughly. Products, loads and stores overlap but for a part.
double estimated_cycles(const DirectBodySm90& kernel, int multiprocessors) {
  constexpr double kL2Bytes = 26, kMemoryBytes = 13;        // that a multiprocessor gets in a cycle
  constexpr double kOperandBytes = 110, kLoadCycles = 160;  // from shared memory; a warp's 4 loads and store
  constexpr double kTileCycles = 2500, kStagedCycles = 5;   // to begin a tile; to store a position
  constexpr double kWideCycles = 60, kPixelCycles = 8;      // to store by 16 bytes; with channels last
  constexpr double kSegmentCycles = 30, kStageCycles = 200,
                   kGroupCycles = 5;  // cycles of waiting, and of copies
  const double blocks = frames_share(kernel) * kernel.blocks(), columns = kernel.positions;
  const double product = kernel.row_blocks() *
                         std::max(kernel.columns() / 2.0, (2048 + kernel.columns() * 32.0) / kOperandBytes);
  const double products = blocks * kernel.steps() * kernel.consumers() * product;
  const double input = blocks * kernel.unit_chunks() * kernel.stage_units();
  const double weights = blocks * kernel.weight_groups() * kernel.weight_stage_bytes();
  const double l2 = (input * 16 + weights) / kL2Bytes,
               loads = input / kernel.loaders() * (kernel.wide_input() ? kWideCycles : kLoadCycles);
  const double each = kernel.conv.nhwc ? kPixelCycles : kStagedCycles * (kernel.staged == 0 ? 4 : 1);
  const double outputs = columns * kernel.consumers() * each * (kernel.conv.residual ? 2 : 1) +
                         (kernel.conv.nhwc ? 0 : 16.0 * kernel.most_segments() * kSegmentCycles);
  const double stages = blocks * (kStageCycles + kernel.weight_groups() * kGroupCycles);
  const double waves = std::ceil(static_cast<double>(kernel.tiles()) / multiprocessors);
  const double all = waves * (std::max({products, l2, loads}) + stages + outputs + kTileCycles);
  const double bytes = 4.0 * kernel.conv.n *
                       (static_cast<double>(kernel.conv.c) * kernel.conv.d * kernel.conv.h * kernel.conv.w +
                        static_cast<double>(kernel.conv.k) * kernel.conv.z * kernel.conv.p * kernel.conv.q);
  return std::max(all, bytes / kMemoryBytes / multiprocessors) + 0.1 * all;
}

// A tile of filters and positions.
TileWork work_of(const DirectBodySm90& a) {
  const double blocks = frames_share(a) * a.blocks(), positions = a.positions;
  const double chunks = blocks * a.unit_chunks() * a.stage_units();
  const double weight_bytes = blocks * a.weight_groups() * a.weight_stage_bytes();
  const double products = blocks * a.steps() * a.consumers();
  const double computed = positions * a.consumers() * a.product_filters();
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.persistent = work.wgmma = true;
  work.load_warps = a.loaders() / 32.0;
  work.load_beside = true;
  work.in_flight_bytes = 16.0 * 20 * a.loaders();
  work.load.instructions = chunks / 32 * (a.wide_input() ? 14 : 35);
  work.load.wavefronts = chunks / 32 * 4;
  // Columns that no tap meets come along in their sectors.
  const double along = std::min(1.0 * a.conv.stride_w / a.phases_w(), 8.0);
  work.load.l2_bytes = chunks * 16 * along + weight_bytes;
  work.multiply.products = products * a.sums();
  work.multiply.instructions = products * a.row_blocks() * 4 * 4;
  work.multiply.wavefronts = products * a.row_blocks() * (16 + a.columns() / 4.0) + weight_bytes / 128;
  work.multiply.waits = blocks * a.weight_groups();
  work.store.instructions = computed / 32 * (a.conv.nhwc ? 5 : 8);
  work.store.wavefronts = computed / 32 * (a.staged ? 2.5 : a.conv.nhwc ? 2 : 1);
  const double piece = a.conv.nhwc ? std::min(a.conv.k, a.block_filters())
                                   : std::min<double>(positions, static_cast<double>(a.segment_positions()));
  store_in_pieces(work, outputs_of(a.conv) / work.tiles, piece);
  if (a.conv.residual) {
    work.store.instructions += computed / 32 * 2;
    work.store.l2_bytes += 4 * computed;
    work.store.waits += positions / 16;
  }
  return work;
}

class DirectBody final : public KernelAlgorithmOf<DirectBodySm90> {
 public:
  DirectBody() : KernelAlgorithmOf("direct_body_sm90") {}

 private:
  bool has_depth() const override { return true; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    static const auto of = [](bool residual) {
      return Abilities{.activations = all_activations(), .residual = residual, .depth = true};
    };
    const Abilities& planes = once([] { return of(false); });
    const Abilities& pixels = once([] { return of(true); });
    if (Support support =
            first_refusal({needs_sm90(device), within(a.layout == Layout::nhwc ? pixels : planes, a),
                           takes_tf32(a), takes_one_group(a), fits_extents(a), takes_channels_from(8, a)});
        !support)
      return support;
    if (a.r * a.s > DirectBodySm90::kMostSteps)
      return Support::no(
          fmt::format("it is for filters of up to {} taps, not {}", DirectBodySm90::kMostSteps, a.r * a.s));
    return Support::yes();
  }

  DirectBodySm90 kernel_of(const Computed& a, const Config& config) const override {
    return with_weight_stages(KernelAlgorithmOf::kernel_of(a, config));
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "no tile of it fits: its window of the input is more than shared memory, or its offsets are more "
           "than an int";
  }
  Support takes_kernel(const DirectBodySm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "at most 3 groups in all, positions a multiple of 8 up to 256 (160 with 3 groups), strips "
        "1 to {}, channels a multiple of 8 up to 64, stages 2 to 8, staged 0, 8 or 16 (channels last: 0), "
        "filter_groups 0 only for up to {} filters in channels last, with positions a multiple of 64, and {} "
        "bytes of shared memory",
        kernel.conv.q, DirectBodySm90::kMostTurned, sm90_smem_per_block()));
  }
  LaunchPlan launch(const DirectBodySm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = kTensorArguments;
    arguments.insert(arguments.end(), {Argument(Turn{}), Argument(Pointer{Operand::residual})});
    return going_on(
        plan_of(kernel, device, {resident_grid(kernel.tiles(), device.units)}, std::move(arguments)), 1);
  }
  TileWork counted(const DirectBodySm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const DirectBodySm90& a) const override {
    return 2.0 * static_cast<double>(a.tiles()) * a.block_positions() * a.block_filters() * a.blocks() *
           a.steps() * 8 * frames_share(a);
  }
  std::optional<StageView> stages(const DirectBodySm90& kernel) const override {
    return stages_alone(kernel);
  }

  // The best valid ones by the estimate.
  std::vector<DirectBodySm90> configs(const Computed& a, const DeviceInfo& device) const override {
    const ConvExtents extents = extents_of(a);
    std::vector<Ranked<DirectBodySm90>> ranked;
    const DirectBodySm90 plain{.conv = extents};
    std::vector<int> strips = {1};
    for (const int width : {128, 64, 32, 16})
      if (extents.q > width) strips.push_back(ceil_div(extents.q, width));
    for (const auto& [filter_groups, position_groups] :
         {std::pair{2, 1}, {1, 2}, {1, 1}, {3, 1}, {0, 2}, {0, 1}})
      for (const int some : strips)
        for (const int channels : {8, 16, 32})
          for (const int producers : {1, 2})
            for (int positions = 256; positions >= 8; positions -= 8) {
              if ((filter_groups - 1) * DirectBodySm90::kTile >= extents.k) continue;
              if (filter_groups == 0 && (!extents.nhwc || positions % DirectBodySm90::kTile != 0)) continue;
              if (channels > 8 && plain.taps() * channels > 64) continue;
              if (producers > 1 && plain.taps() > 1) continue;
              // The others of this size are for where it does not fit.
              for (const auto& [stages, staged] :
                   {std::pair{3, 16}, {3, 8}, {4, 16}, {4, 8}, {2, 8}, {4, 0}, {3, 0}, {2, 0}}) {
                // Only where channels come last more than two stages are worth it without any staged.
                if (extents.nhwc ? staged > 0 : staged == 0 && stages > 2) continue;
                const DirectBodySm90 kernel = with_weight_stages({.conv = extents,
                                                                  .filter_groups = filter_groups,
                                                                  .position_groups = position_groups,
                                                                  .positions = positions,
                                                                  .strips = some,
                                                                  .channels = channels,
                                                                  .stages = stages,
                                                                  .staged = staged,
                                                                  .producers = producers});
                if (!kernel.valid(sm90_smem_per_block()) || kernel.weight_stages < (stages > 2 ? 3 : 2))
                  continue;
                ranked.push_back({estimated_cycles(kernel, device.units), kernel});
                break;
              }
            }
    return best_of(std::move(ranked), 48);
  }
};

}  // namespace

const Algorithm& direct_body_sm90() {
  return once([] { return DirectBody(); });
}

}  // namespace convtune::cuda
