// `weight_gradient_sm80`: gradients of weights in half precision, channels last, on tensor cores of compute
// capability 8.0 and up (weight_gradient_sm80.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/weight_gradient_sm80/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

// More are wgmma's, or of tiles of more warps.
constexpr std::int64_t kMostChannels = 128;

// A tile of dy, with what it meets of x.
TileWork work_of(const WeightGradientSm80& a) {
  const ConvExtents& conv = a.conv;
  const double warps = a.warps(), products = a.products(), pairs = ceil_div(a.eights(), 2);
  const double units = 1.0 * a.input_rows() * a.units() * (a.first_layer() ? 1 : a.block_octets());
  const double gradients = a.rows * a.columns * a.filters / 8.0;
  const bool one_by_one = a.first_layer() && !(conv.c == 4 && !conv.has_depth());
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.chunks();
  work.persistent = true, work.load_beside = a.stages > 1;
  work.load.instructions =
      gradients / 32 * 18 + units / 32 * (one_by_one ? 25 + 3.0 * a.pixel_channels() : 22);
  work.load.wavefronts = (a.input_bytes() + a.gradient_bytes()) / 128.0;
  work.load.l2_bytes =
      16 * gradients + (a.first_layer() ? 2.0 * a.pixel_channels() * a.unit_pixels() : 16.0) * units;
  work.load.waits = 1 + (a.first_layer() ? 2 : 0);
  work.in_flight_bytes = std::max(1, a.stages - 1) * work.load.l2_bytes;
  const double of_warp = a.sixteens() * (a.eights() + 1.0 / (a.warps_o * a.warps_r));
  work.multiply.products = warps * products * of_warp;
  work.multiply.instructions = warps * products * (of_warp + a.sixteens() + 2 * pairs + 6);
  work.multiply.wavefronts = warps * products * 4 * (a.sixteens() + pairs);
  work.multiply.waits = 1;
  work.stored_bytes = 16.0 * a.chunk_fours() / static_cast<double>(a.turns());
  work.pieces = work.stored_bytes / 512;
  return work;
}

// Every valid config.
std::vector<WeightGradientSm80> configs_of(const WeightGradientSm80& plain, const Target& target) {
  std::vector<WeightGradientSm80> configs;
  const ConvExtents& conv = plain.conv;
  const auto add = [&](WeightGradientSm80 kernel) {
    if (!kernel.possible() || kernel.smem_bytes() > target.smem_per_block) return;
    kernel.blocks = lesser(most_blocks(kernel, target), 16);
    if (kernel.blocks < 1) return;
    const long long room = 1LL * target.multiprocessors * kernel.blocks / kernel.chunks();
    kernel.split = static_cast<int>(std::clamp(room, 1LL, std::min(kernel.tiles(), 1LL << 16)));
    // As few blocks as need no more turns.
    kernel.split = static_cast<int>(ceil_div(kernel.tiles(), kernel.turns()));
    if (kernel.valid(target.smem_per_block)) configs.push_back(kernel);
  };
  std::vector<int> columns;
  for (const int sides : {1, 2, 4, 8})
    if (const int some = round_up(ceil_div(conv.q, sides), 8);
        some <= 128 && std::find(columns.begin(), columns.end(), some) == columns.end())
      columns.push_back(some);
  // All eights of channels read dy once.
  std::set<int> octet_choices = {1, 2, 4, 8};
  if (plain.all_octets() <= 16) octet_choices.insert(plain.all_octets());
  for (const int filters : {16, 32, 48, 64, 96, 128}) {
    if (filters >= round_up(conv.k, 16) + 16) continue;
    for (int warps_m = 1; warps_m <= lesser(filters / 16, 8); warps_m *= 2)
      for (const int octets : octet_choices)
        for (int warps_o = 1; warps_o <= lesser(octets, 8); ++warps_o) {
          if (octets % warps_o != 0) continue;
          for (const int warps_r : {1, conv.r})
            for (const int some : columns)
              for (const int rows : {1, 2, 4, 7, 8, 14}) {
                if (rows > conv.p + 1) continue;
                for (const int stages : {1, 2, 3}) {
                  WeightGradientSm80 kernel = plain;
                  kernel.filters = filters, kernel.warps_m = warps_m, kernel.octets = octets;
                  kernel.warps_o = warps_o, kernel.warps_r = warps_r, kernel.columns = some,
                  kernel.rows = rows;
                  kernel.stages = stages;
                  if (kernel.warps() < 2 && filters > 32) continue;
                  add(kernel);
                }
              }
        }
  }
  return configs;
}

class WeightGradient final : public KernelAlgorithmOf<WeightGradientSm80> {
 public:
  WeightGradient() : KernelAlgorithmOf("weight_gradient_sm80") {}

 private:
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  bool has_depth() const override { return true; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_gradients_of_weights(a, true),
                                         takes_layout(a, Layout::nhwc), fits_extents(a)});
        !support)
      return support;
    if (a.dtype.x == DType::f32) return Support::no("it is for x and dy in half precision");
    if (!plain_of(a).fits_problem())
      return Support::no(fmt::format(
          "it is for filters in eights, of channels in eights or at most 4 in one group, and of several "
          "groups "
          "for 4, 8 or multiples of 16 filters each, of which 16 meet channels in eights; in three "
          "dimensions of one group, for channels and frames of a filter of which a pixel meets at most 8: "
          "{} filters and {} channels in {} groups are not",
          a.k, a.c, a.groups));
    if (a.c / a.groups > kMostChannels)
      return Support::no(
          fmt::format("it is for at most {} channels a group, not {}", kMostChannels, a.c / a.groups));
    if (a.groups == a.c && a.groups > 1) return Support::no("it is not for one channel a group");
    return Support::yes();
  }
  WeightGradientSm80 kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static WeightGradientSm80 plain_of(const ConvProblem& problem) {
    return {.conv = extents_of(problem), .w_type = element_type_of(problem.dtype.w)};
  }

  std::string why_none(const ConvProblem& a, const DeviceInfo& device) const override {
    WeightGradientSm80 least = plain_of(a);
    return fmt::format(
        "no tile of 16 pixels leaves a warp room for its sums (at most {}) and a block for what it meets "
        "({} bytes of {}), or there are more than 2^30 numbers in an image",
        WeightGradientSm80::kMostSums, least.smem_bytes(), target_of(device).smem_per_block);
  }
  std::vector<WeightGradientSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<WeightGradientSm80>> ranked;
    const Target target = target_of(device);
    for (const WeightGradientSm80& kernel : configs_of(plain_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const WeightGradientSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format(
          "columns are a multiple of 8 and pixels of 16, filters of 16 times warps_m and within groups or of "
          "whole ones, warps_o divides octets and warps_r filter rows, at most 16 warps with {} sums a "
          "thread",
          WeightGradientSm80::kMostSums));
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("a split of at most {}, {}", kernel.tiles(), needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const WeightGradientSm80& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, sums_arguments());
    add_up_behind(plan, kernel.partial_words(), blocks_of_fours(kernel.rank_fours(), kernel.split),
                  kAddThreads, {DwLast{}});
    return plan;
  }
  TileWork counted(const WeightGradientSm80& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const WeightGradientSm80& a) const override {
    return 2.0 * 16 * 128 * a.products() * a.sixteens() * a.eights() * a.warps() *
           static_cast<double>(a.tiles()) * a.chunks();
  }
};

}  // namespace

const Algorithm& weight_gradient_sm80() {
  return once([] { return WeightGradient(); });
}

}  // namespace convtune::cuda
