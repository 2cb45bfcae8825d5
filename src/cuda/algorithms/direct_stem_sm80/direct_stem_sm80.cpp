// `direct_stem_sm80`: few input channels on compute capability 8.0 and up (direct_stem_sm80.cuh).
// Which problems it takes, and what runs. The fields of a config: config.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_stem_sm80/candidates.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/capability_facts.h"
#include "model/target_of.h"

namespace convtune::cuda {
namespace {

// Clock cycles of a block's products, if the tensor cores have nothing else to do.
double product_cycles(const DirectStemSm80& kernel, const DeviceInfo& device) {
  const double outputs = 1.0 * kernel.filters() * kernel.band() * kernel.columns();
  return tensor_cycles(target_of(device), false) * kernel.k_steps() * outputs / 128;
}

// A block: its window, rounded as it is stored; all k-steps; outputs by way of shared memory, or not.
TileWork work_of(const DirectStemSm80& a, double pixel_wavefronts) {
  const double k_steps = a.k_steps(), filters = a.filter_tiles(), pixels = a.tiles();
  const double window = 1.0 * a.smem_rows() * a.window_columns();
  const double weight_bytes = 4 * k_steps * a.step_floats();
  const double computed = 1.0 * a.filters() * a.band() * a.columns();
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.in_flight_bytes = 4.0 * a.threads() * (a.register_limit() - 32) / 2;
  work.load.instructions = window / 32 * (6 + 4.0 / a.load_width);
  work.load.wavefronts = window / 32;
  work.load.l2_bytes = 4 * window;
  work.multiply.products = computed / 128 * k_steps;
  work.multiply.instructions =
      a.warps() * k_steps * (filters * pixels + filters + 2 * pixels) + 3 * weight_bytes / kBulkBytes;
  work.multiply.wavefronts =
      a.warps() * k_steps * (4 * filters + 2 * pixels * pixel_wavefronts) + weight_bytes / 128;
  work.multiply.l2_bytes = weight_bytes;
  work.multiply.waits = a.resident() ? 0 : a.all_stages();
  work.store.instructions = computed / 32 * (a.staged ? 5 : 4);
  // From registers: a fragment of 8 pixels is a sector; or part of two; or it takes two stores, one for the
  // odd pixels, and then each sector is written in parts.
  const double sectors = a.conv.q % 8 == 0 ? 4 : a.conv.q % 2 == 0 ? 8 : 16;
  work.store.wavefronts = computed / 32 * (a.staged ? 2 : sectors);
  work.store.waits = a.staged ? 2.0 * a.filter_tiles() / a.staged_tiles() : 0;
  store_in_pieces(work, outputs_of(a.conv) / work.tiles,
                  a.staged ? a.run() : std::min(a.columns(), a.conv.q));
  if (!a.staged && a.conv.q % 2 != 0) work.part_sectors = outputs_of(a.conv) / work.tiles / 8;
  return work;
}

class DirectStem final : public KernelAlgorithmOf<DirectStemSm80> {
 public:
  DirectStem() : KernelAlgorithmOf("direct_stem_sm80") {}

 private:
  bool has_depth() const override { return true; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    const Abilities& abilities =
        once([] { return Abilities{.activations = kHalfAbilities.activations, .depth = true}; });
    if (Support support =
            first_refusal({needs_sm80(device), within(abilities, a), takes_layout(a, Layout::nchw),
                           takes_tf32(a), takes_one_group(a), takes_dense_filters(a), fits_extents(a)});
        !support)
      return support;
    constexpr std::int64_t kMost = DirectStemSm80::kMostTaps;
    if (a.c > kMost || a.t > kMost || a.r > kMost || a.s > kMost || a.c * a.t > kMost ||
        a.c * a.t * a.r * a.s > kMost)
      return Support::no(
          fmt::format("it is for few input channels: {}x{}x{}x{} products a sum are more than {}", a.c, a.t,
                      a.r, a.s, kMost));
    if (a.d * a.h * a.w >= (std::int64_t{1} << 31) / a.c)  // offsets in an image are ints
      return Support::no(fmt::format("an image of {} numbers is too large", a.c * a.d * a.h * a.w));
    return Support::yes();
  }

  DirectStemSm80 kernel_of(const Computed& a, const Config& config) const override {
    const DirectStemPlanned planned(a);
    return planned.laid_out(from_config(config, planned.plain()));
  }
  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return direct_stem_sm80_has_configs(DirectStemPlanned(a), target_of(device));
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    const DirectStemPlanned planned(a);
    DirectStemSm80 least = planned.plain();
    least.column_warps = 4, least.steps = 2, least.stages = 3;
    least = planned.laid_out(least);
    return fmt::format(
        "{} bytes of shared memory and {} instructions are about the least that it needs here, and it has {} "
        "and {}",
        least.smem_bytes(), least.instructions(), smem_per_block_anywhere(),
        DirectStemSm80::kMostInstructions);
  }
  std::vector<DirectStemSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectStemSm80>> ranked;
    const DirectStemPlanned planned(a);
    const Target target = target_of(device);
    for (const DirectStemSm80& kernel : direct_stem_sm80_configs(planned, target)) {
      // The launch bounds keep `blocks` resident.
      TileWork work = work_of(kernel, planned.wavefronts_at(kernel.row_pitch));
      work.input_bytes = read_bytes(a);
      const BlockShape block = {kernel.threads(), 0, work.tiles, kernel.blocks};
      ranked.push_back({estimate_time(target, work, block).us, kernel});
    }
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DirectStemSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          fmt::format("warp_filters is a multiple of 16 up to 128, blocks are 1 to 8, staged is 0 or 1, all "
                      "others 1 or more with at most {} warps",
                      DirectStemSm80::kMostWarps));
    const Target target = target_of(device);
    if (direct_stem_sm80_fits(kernel, target)) return Support::yes();
    return Support::no(fmt::format(
        "2 stages or all {} steps in one, {} registers (this: {}), {} instructions (this: {}), {} bytes of "
        "shared memory (this: {}) and {} for all blocks, whole rows ({} columns) where staged",
        kernel.k_steps(), kernel.register_limit(), kernel.registers(), DirectStemSm80::kMostInstructions,
        kernel.instructions(), smem_per_block_anywhere(), kernel.smem_bytes(), target.smem_per_multiprocessor,
        kernel.conv.q));
  }
  LaunchPlan launch(const DirectStemSm80& asked, const DeviceInfo& device) const override {
    DirectStemSm80 kernel = asked;
    const double delay = std::min(product_cycles(kernel, device) * kernel.stagger / 100, 1e6);
    kernel.stagger = 0;  // said at the launch
    std::vector<Argument> arguments = kTensorArguments;
    arguments.insert(arguments.end(),
                     {Argument(device.units), Argument(static_cast<int>(delay)), Argument(Turn{})});
    LaunchPlan plan =
        plan_of(kernel, device, {static_cast<unsigned>(kernel.all_blocks())}, std::move(arguments));
    // Some configs fill the registers so well that ptxas spills one or two of them by mishap, a few in a
    // hundred: then another order of loads is tried.
    plan.configs.clear();
    for (const int held : {1, 0, 2, 3}) {
      kernel.held = held;
      plan.configs.push_back(to_cuda(kernel));
    }
    return plan;
  }
  TileWork counted(const DirectStemSm80& kernel) const override {
    return work_of(kernel, direct_stem_sm80_wavefronts(kernel));
  }
  double flops(const ConvProblem&, const DirectStemSm80& a) const override {
    return 16.0 * a.k_steps() * a.filters() * a.band() * a.columns() * static_cast<double>(a.all_blocks());
  }
  // Twice the warps share the same tile: each has half of the filters, rows or columns.
  std::optional<StageView> stages(const DirectStemSm80& kernel) const override {
    // More stages than are used would be kept empty.
    return view_of_stages({kernel.warps(), kernel.used_stages()}, 1, [kernel](const StageConfig& wanted) {
      DirectStemSm80 other = kernel;
      other.stages = static_cast<int>(wanted.stages);
      if (wanted.warps != 2 * kernel.warps()) return to_config(other);
      if (kernel.warp_filters % 32 == 0)
        other.warp_filters /= 2, other.filter_warps *= 2;
      else if (kernel.warp_rows % 2 == 0)
        other.warp_rows /= 2, other.row_warps *= 2;
      else if (kernel.warp_columns % 2 == 0)
        other.warp_columns /= 2, other.column_warps *= 2;
      return to_config(other);
    });
  }
};

}  // namespace

const Algorithm& direct_stem_sm80() {
  return once([] { return DirectStem(); });
}

}  // namespace convtune::cuda
