// `direct_stem_sm90`: few input channels and a stride of 4 on compute capability 9.0
// (direct_stem_sm90.cuh). Which problems it takes, its search space, and what runs. `consumers`
// warpgroups multiply; `units` of input are kept at once; `filters` belong to a block.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_stem_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"

namespace convtune::cuda {
namespace {

// Blocks beside each other: those of the filter blocks that share an image row, and one a multiprocessor.
int row_blocks(const DirectStemSm90& kernel, int multiprocessors) {
  return static_cast<int>(std::clamp<long long>(multiprocessors / kernel.filter_blocks(), 1, kernel.rows()));
}

// An output row. A product of wgmma reads both operands from shared memory: 64 pixels, and filters. Bulk
// copies bring whole units; warps of their own round them; others store whole sectors.
TileWork work_of(const DirectStemSm90& a) {
  const double filters = a.filters, products = a.tiles() * a.k_steps();
  const double chunks = 1.0 * a.conv.c * a.unit_rows() * a.row_chunks();
  const double computed = a.tiles() * DirectStemSm90::kTile * filters;
  TileWork work;
  work.tiles = static_cast<double>(a.rows()) * a.filter_blocks();
  work.persistent = work.wgmma = true;
  work.load_warps = a.threads() / 32.0 - 4 * a.consumers;
  work.in_flight_bytes = (a.units - a.halo()) * static_cast<double>(a.unit_bytes());
  work.load.instructions = chunks / 32 * 20;
  work.load.wavefronts = chunks / 32 * 4 * 3;
  work.load.l2_bytes = 4.0 * a.conv.c * a.unit_rows() * a.conv.w;
  work.multiply.products = products * filters / 2;
  work.multiply.instructions = products * 4 * 6;
  work.multiply.wavefronts = products * (16 + filters / 4);
  work.multiply.waits = 1.0 * a.tiles() / a.consumers;
  work.store.instructions = computed / 32 * 3;
  work.store.wavefronts = computed / 32 * 2;
  work.store_beside = true;
  store_in_pieces(work, 1.0 * a.conv.n * a.conv.k * a.conv.p * a.conv.q / work.tiles, DirectStemSm90::kTile);
  return work;
}

// y as [image][plane][run], for the three lengths of a run.
TensorMaps maps_of(const DirectStemSm90& kernel) {
  constexpr std::uint64_t kPlanes = DirectStemSm90::kPlanes, kFloat = sizeof(float);
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t image = wide(kernel.conv.p) * wide(kernel.conv.q), k = wide(kernel.conv.k);
  TensorMapGroup y{Operand::y, {}, 3};
  if (kernel.has_boxes())
    for (const int length : {std::max(kernel.short_run(), DirectStemSm90::kSector),
                             kernel.short_run() + DirectStemSm90::kSector, DirectStemSm90::kTile})
      y.maps.push_back(
          {{kPlanes * image, k / kPlanes, wide(kernel.conv.n)},
           {kFloat * kPlanes * image, kFloat * k * image},
           {static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(kernel.members()), 1}});
  return {"convtune::direct_stem_sm90::Maps", {y}};
}

class DirectStem final : public KernelAlgorithmOf<DirectStemSm90> {
 public:
  DirectStem() : KernelAlgorithmOf("direct_stem_sm90") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm90(device), takes_tf32_nchw(a), takes_one_group(a),
                                         takes_dense_filters(a), fits_extents(a)});
        !support)
      return support;
    if (a.stride_w != 4)
      return Support::no(fmt::format("it is for a stride of 4 columns only, not {}", a.stride_w));
    constexpr std::int64_t kMostTaps = 8 * DirectStemSm90::kMostProducts;
    if (a.c > kMostTaps || a.r > kMostTaps || a.s > kMostTaps || a.c * a.r * a.s > kMostTaps)
      return Support::no(fmt::format("it is for few input channels: {}x{}x{} products a sum are more than {}",
                                     a.c, a.r, a.s, kMostTaps));
    return Support::yes();
  }

  bool has_configs(const Computed& a, const DeviceInfo&) const override {
    return !configs_of(extents_of(a)).empty();
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    DirectStemSm90 kernel{.conv = extents_of(a)};
    if (kernel.last_tile() < DirectStemSm90::kSector)
      return fmt::format("rows of {} outputs end with a tile of less than {}", kernel.conv.q,
                         DirectStemSm90::kSector);
    kernel.consumers = 2, kernel.filters = 32;
    kernel.units = kernel.halo() + 2;
    return fmt::format(
        "{} products a tile and {} bytes of shared memory are the least that it needs here, and it has {} "
        "and {}",
        kernel.k_steps(), kernel.smem_bytes(), DirectStemSm90::kMostProducts, sm90_smem_per_block());
  }
  std::vector<DirectStemSm90> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectStemSm90>> ranked;
    const Target target = target_of(device);
    for (const DirectStemSm90& kernel : configs_of(extents_of(a)))
      ranked.push_back(
          timed(kernel, a, target, 1.0 * row_blocks(kernel, device.units) * kernel.filter_blocks()));
    // configs_of() has the better first where the model sees no difference.
    return best_of(std::move(ranked));
  }

  Support takes_kernel(const DirectStemSm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "consumers 2 or {}, units {} to {}, filters 32, 64 or 96, at most {} bytes of shared "
        "memory (this: {})",
        DirectStemSm90::kMostConsumers, kernel.halo() + 2,
        kernel.halo() + DirectStemSm90::kMostUnitsBesideHalo, sm90_smem_per_block(), kernel.smem_bytes()));
  }
  LaunchPlan launch(const DirectStemSm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = {maps_of(kernel), TensorMapsUsable{0}};
    arguments.insert(arguments.end(), kTensorArguments.begin(), kTensorArguments.end());
    const Extent3 grid = {static_cast<unsigned>(row_blocks(kernel, device.units)),
                          static_cast<unsigned>(kernel.filter_blocks())};
    return plan_of(kernel, device, grid, std::move(arguments));
  }
  TileWork counted(const DirectStemSm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const DirectStemSm90& a) const override {
    return 2.0 * static_cast<double>(a.rows()) * a.tiles() * DirectStemSm90::kTile * a.k_steps() * 8 *
           a.filter_blocks() * a.filters;
  }
  // Its stages are the units that it keeps beside those that a filter covers.
  std::optional<StageView> stages(const DirectStemSm90& kernel) const override {
    return stages_alone(kernel.threads() / 32, kernel.units - kernel.halo(), [kernel](std::int64_t stages) {
      DirectStemSm90 other = kernel;
      other.units = kernel.halo() + static_cast<int>(stages);
      return to_config(other);
    });
  }

  // Every valid one: three consumers and many units first.
  static std::vector<DirectStemSm90> configs_of(const ConvExtents& extents) {
    std::vector<DirectStemSm90> configs;
    const int halo = DirectStemSm90{.conv = extents}.halo();
    for (const int consumers : {3, 2})
      for (const int filters : {96, 64, 32})
        for (int units = halo + DirectStemSm90::kMostUnitsBesideHalo; units >= halo + 2; --units) {
          const DirectStemSm90 kernel{
              .conv = extents, .consumers = consumers, .units = units, .filters = filters};
          if (filters < extents.k + 32 && kernel.valid(sm90_smem_per_block())) configs.push_back(kernel);
        }
    return configs;
  }
};

}  // namespace

const Algorithm& direct_stem_sm90() {
  return once([] { return DirectStem(); });
}

}  // namespace convtune::cuda
