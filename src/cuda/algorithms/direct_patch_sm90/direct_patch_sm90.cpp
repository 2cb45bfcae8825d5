// `direct_patch_sm90`: filters that neither overlap nor leave gaps, on compute capability 9.0
// (direct_patch_sm90.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_patch_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"

namespace convtune::cuda {
namespace {

// Clock cycles of the busiest multiprocessor, roughly: of products, of the copy engine and of what a stage
// waits for its loads the slowest, then the outputs, which memory takes from all multiprocessors at once.
double estimated_cycles(const DirectPatchSm90& kernel, int multiprocessors) {
  constexpr double kCopyCycles = 100, kCopiedBytes = 75;  // to begin a copy; in a cycle
  constexpr double kLatency = 1500, kStoredBytes = 10.5, kTileCycles = 1000, kMemoryBytes = 13;
  const ConvExtents& a = kernel.conv;
  const double products = 1.0 * kernel.steps() * kernel.consumers * kernel.filters / 2;
  const double copies = 2 + (kernel.patch_rows() - 1) / kernel.most_box_rows();
  const double engine = kCopyCycles * copies + static_cast<double>(kernel.stage_bytes()) / kCopiedBytes;
  const double idle = kernel.consumers == 1 ? 0.5 * products : 0;  // between a warpgroup's products
  const double stage = std::max({products + idle, engine, (kLatency + engine) / (kernel.stages - 1)});
  const double outputs = 4.0 * kernel.block_positions() * kernel.filters / kStoredBytes;
  const double waves =
      std::ceil(static_cast<double>(kernel.tiles()) / resident_grid(kernel.tiles(), multiprocessors));
  const double all = waves * (stage * kernel.sum_stages() + outputs + kTileCycles);
  const double bytes =
      4.0 * a.n * (static_cast<double>(a.c) * a.h * a.w + static_cast<double>(a.k) * a.p * a.q);
  return std::max(all, bytes / kMemoryBytes / multiprocessors);
}

// A tile of positions and filters. The copy engine brings rows as they lie; a product of wgmma reads weights
// from shared memory and positions from registers; boxes are stored once the sums are complete.
TileWork work_of(const DirectPatchSm90& a) {
  const double stages = a.sum_stages(), products = stages * a.steps() * a.consumers;
  const double computed = 1.0 * a.block_positions() * a.filters;
  const double loaded = stages * static_cast<double>(a.stage_bytes());
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.persistent = work.wgmma = true;
  work.load_warps = 1;
  work.in_flight_bytes = static_cast<double>(a.stages) * static_cast<double>(a.stage_bytes());
  work.load.instructions = stages * 60;
  work.load.wavefronts = loaded / 128;
  work.load.l2_bytes = loaded;
  work.multiply.products = products * a.filters / 2;
  work.multiply.instructions = products * 4 * 20;
  work.multiply.wavefronts = products * (16 + a.filters / 4.0);
  work.multiply.waits = stages;
  work.store.instructions = computed / 32 * 4;
  work.store.wavefronts = computed / 32 * 2;
  store_in_pieces(work, outputs_of(a.conv) / work.tiles, 32);
  if (a.conv.p * a.conv.q % 8 != 0) work.part_sectors = work.pieces;  // per second filter
  return work;
}

// x as [image and channel][row of patches][filter row][piece][column]; a map for each number of filter rows
// that one copy may take. y as [image][filter][position].
TensorMaps maps_of(const DirectPatchSm90& kernel) {
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  const auto narrow = [](int value) { return static_cast<std::uint32_t>(value); };
  const ConvExtents& a = kernel.conv;
  const int columns = kernel.box_columns(), pieces = a.w / columns;
  const std::uint64_t row = sizeof(float) * wide(a.w);
  TensorMapGroup x{Operand::x, {}, DirectPatchSm90::kInputBoxes};
  for (int rows = 1; rows <= kernel.most_box_rows(); ++rows)
    x.maps.push_back({{wide(columns), wide(pieces), wide(a.r), wide(a.p), wide(a.n) * wide(a.c)},
                      {sizeof(float) * wide(columns), row, row * wide(a.r), row * wide(a.h)},
                      {narrow(columns), narrow(pieces), narrow(kernel.rows), narrow(rows), 1}});
  TensorMapGroup y{Operand::y, {}};
  const std::uint64_t image = wide(a.p) * wide(a.q);
  if (kernel.has_boxes())
    y.maps.push_back({{image, wide(a.k), wide(a.n)},
                      {sizeof(float) * image, sizeof(float) * wide(a.k) * image},
                      {32, DirectPatchSm90::kStagedFilters, 1},
                      Swizzle::bytes_128});
  return {"convtune::direct_patch_sm90::Maps", {x, y}};
}

class DirectPatch final : public KernelAlgorithmOf<DirectPatchSm90> {
 public:
  DirectPatch() : KernelAlgorithmOf("direct_patch_sm90") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm90(device), takes_tf32_nchw(a), fits_extents(a)}); !support)
      return support;
    if (!DirectPatchSm90::takes(extents_of(a)))
      return Support::no(
          "it is for patches only: filters as wide and high as their stride, dense, with no padding and one "
          "group; 4, 8 or a multiple of 16 columns, in rows of a multiple of 32");
    return Support::yes();
  }

  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    return fmt::format(
        "two stages of its rows of {} columns are more than shared memory, or its offsets are more than an "
        "int",
        a.w);
  }
  Support takes_kernel(const DirectPatchSm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "consumers 1 to 3, filters a multiple of 32 up to 256 (192 with 3 consumers), rows that divide {} "
        "with at most {} numbers of a sum, a multiple of 16, stages 2 to {}, and {} bytes of shared memory",
        kernel.conv.r, DirectPatchSm90::kMostStageNumbers, DirectPatchSm90::kMostStages,
        sm90_smem_per_block()));
  }
  LaunchPlan launch(const DirectPatchSm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = {maps_of(kernel), TensorMapsUsable{0}, TensorMapsUsable{1}};
    arguments.insert(arguments.end(), kTensorArguments.begin(), kTensorArguments.end());
    return plan_of(kernel, device, {resident_grid(kernel.tiles(), device.units)}, std::move(arguments));
  }
  TileWork counted(const DirectPatchSm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const DirectPatchSm90& a) const override {
    return 2.0 * static_cast<double>(a.position_tiles()) * a.block_positions() * a.filter_blocks() *
           a.filters * a.conv.taps();
  }
  std::optional<StageView> stages(const DirectPatchSm90& kernel) const override {
    return stages_alone(kernel);
  }

  // The best valid ones by the estimate, each with as many stages as there is room for.
  std::vector<DirectPatchSm90> configs(const Computed& a, const DeviceInfo& device) const override {
    const ConvExtents extents = extents_of(a);
    std::vector<Ranked<DirectPatchSm90>> ranked;
    for (const int consumers : {3, 2, 1})
      for (int filters = 256; filters >= 32; filters -= 32)
        for (const int rows : {1, 2, 4, 8, 16}) {
          if (filters >= extents.k + 32) continue;
          for (int stages = DirectPatchSm90::kMostStages; stages >= 2; --stages) {
            const DirectPatchSm90 kernel{
                .conv = extents, .consumers = consumers, .filters = filters, .rows = rows, .stages = stages};
            if (!kernel.valid(sm90_smem_per_block())) continue;
            ranked.push_back({estimated_cycles(kernel, device.units), kernel});
            break;
          }
        }
    return best_of(std::move(ranked), 32);
  }
};

}  // namespace

const Algorithm& direct_patch_sm90() {
  return once([] { return DirectPatch(); });
}

}  // namespace convtune::cuda
