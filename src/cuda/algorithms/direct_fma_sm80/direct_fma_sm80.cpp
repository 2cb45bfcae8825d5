// `direct_fma_sm80`: sums of few products on CUDA cores, compute capability 8.0 and up
// (direct_fma_sm80.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_fma_sm80/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/capability_facts.h"
#include "model/target_of.h"

namespace convtune::cuda {
namespace {

// Products of a sum. Above, tensor cores are the better place for them: where all channels make one group;
// where they are many groups, which fill no tensor core; where each channel is its own.
constexpr std::int64_t kMostOfOneGroup = 40, kMostOfManyGroups = 160, kMostOfOneChannel = 1024;

bool shares_weights(const DirectFmaSm80& a) {
  return a.uniform || a.weight_units() * a.chunks == 1;
}
bool uniform_weights(const DirectFmaSm80& a) {
  return shares_weights(a) && a.conv.r * a.conv.s * a.filters <= 50;
}

// Counts a warp's work for one strip: instructions, and wavefronts of shared memory, 128 bytes each.
struct StripWork {
  double instructions = 0, wavefronts = 0;
};
StripWork strip_work(const DirectFmaSm80& a) {
  const ConvExtents& conv = a.conv;
  int used_rows = 0, filter_rows = 0;
  for (int row = 0; row < a.strip_rows(); ++row) {
    used_rows += a.is_used(row);
    for (int output = 0; output < a.rows; ++output) filter_rows += a.filter_row(row, output) >= 0;
  }
  const double vectors = ceil_div(a.first_column() % 4 + a.window(), 4);
  const double inputs = used_rows * vectors / (a.kept ? a.passes : 1);
  const double weights = (a.weights_in_registers() ? conv.r : filter_rows) * a.weight_row_floats() / 4.0;
  // Uniform registers are few: where the weights do not fit, some are moved there again and again. Threads
  // that want different weights read them one after the other.
  const double moved = !shares_weights(a) ? 0 : conv.r * a.weight_row_floats() * (uniform_weights(a) ? 1 : 3);
  const bool whole = conv.q % 4 == 0;
  const double outputs = a.rows * a.filters;
  return {50 + outputs * ((whole ? 2 : 8) + (a.staged ? 3 : 0)) +
              conv.group_channels() * (filter_rows * conv.s * a.filters * 4.0 + inputs +
                                       weights * (a.weights_in_registers() ? 1 : 4) + moved),
          outputs * (whole ? 4 : 16) * (a.staged ? 2 : 1) +
              conv.group_channels() *
                  (inputs * 4 * std::min(conv.stride_w, 2) + weights * (shares_weights(a) ? 1 : 3))};
}

// Instructions that bring 32 numbers into shared memory. Halves are widened, one by one.
double load_instructions(const DirectFmaSm80& a) {
  if (!a.halves()) return a.vectors() ? 4 : 12;
  return 2 + 16.0 / a.copied_halves();
}

// Clock cycles, roughly: what the processors issue, what shared memory passes on, what memory moves.
double estimated_cycles(const DirectFmaSm80& a, const Target& target) {
  const ConvExtents& conv = a.conv;
  const StripWork strip = strip_work(a);
  const double warps = a.threads() / 32.0;
  const double loads = static_cast<double>(a.planes()) * a.input_rows() * a.loaded_columns() / 32;
  const int registers = a.registers() - (uniform_weights(a) ? a.conv.r * a.conv.s * a.filters : 0);
  const double issue = (warps * (a.passes * strip.instructions + 60) + loads * load_instructions(a)) / 4;
  const double smem = warps * a.passes * strip.wavefronts + loads * 2;
  // Blocks beside each other, how well their warps hide latencies, and how evenly blocks fall.
  const double beside = std::max(
      1.0,
      std::floor(std::min({static_cast<double>(target.threads_per_multiprocessor) / a.threads(),
                           1.0 * target.blocks_per_multiprocessor,
                           1.0 * target.registers_per_multiprocessor / (round_up(registers, 8) * a.threads()),
                           static_cast<double>(target.smem_per_multiprocessor) /
                               static_cast<double>(a.smem_bytes() + target.smem_reserved)})));
  const double blocks = static_cast<double>(a.blocks()) / target.multiprocessors;
  const double at_once = warps * std::min(beside, std::ceil(blocks));
  const double compute = (std::max(issue, smem) + 0.1 * std::min(issue, smem)) / 1.1 * (1 + 1.5 / at_once) *
                         (blocks <= beside ? std::ceil(blocks) : blocks + 0.5 * std::min(1.0, beside / 4));
  // Rows and planes that are read twice come from L2.
  const double load_bytes = 32.0 * size_of(conv.x_type) * loads;
  const double loaded = static_cast<double>(a.blocks()) * load_bytes;
  const double input = 1.0 * size_of(conv.x_type) * conv.n * conv.c * conv.h * conv.w;
  const double output =
      (conv.residual ? 2.0 : 1.0) * size_of(conv.y_type) * conv.n * conv.k * conv.p * conv.q;
  const double moved = std::min(loaded, input) + output + 0.3 * std::max(0.0, loaded - input);
  const double copied = capability_facts(target.capability).copied_bytes_per_cycle;
  const double on_the_way = std::max(beside - 1, 0.5) * load_bytes;
  const double memory = moved / target.multiprocessors / copied * (1 + 1500 / on_the_way);
  // Whatever does not overlap: a block's threads load, compute and store in turns.
  const double alone = 0.15 + 0.6 / (beside + a.passes - 1);
  return std::max(compute, memory) + alone * std::min(compute, memory) + 2500;
}

// A block: its window by asynchronous copies, then strips.
TileWork work_of(const DirectFmaSm80& a) {
  const StripWork strip = strip_work(a);
  const double warps = a.threads() / 32.0;
  const double floats = static_cast<double>(a.planes()) * a.input_rows() * a.loaded_columns();
  TileWork work;
  work.tiles = static_cast<double>(a.blocks());
  work.cuda_cores = true;
  work.store_beside = !a.staged;
  const double bytes = size_of(a.conv.x_type) * floats;
  // Halves wait in registers, a few pieces a thread.
  work.in_flight_bytes = a.halves() ? std::min(bytes, 8.0 * a.copied_halves() * a.threads()) : bytes;
  work.load.instructions = floats / 32 * load_instructions(a);
  work.load.wavefronts = floats / 32 * 2;
  work.load.l2_bytes = bytes + 4.0 * a.weight_units() * a.block_weight_floats();
  work.multiply.instructions = warps * (a.passes * strip.instructions + 60);
  work.multiply.wavefronts = warps * a.passes * strip.wavefronts;
  // Rows of a plane follow each other in y.
  store_in_pieces(work, outputs_of(a.conv) / work.tiles, 1.0 * a.band_rows() * a.block_columns());
  // One at a time where rows are not whole vectors: it is as if half of the sectors were written in parts.
  if (!a.staged && a.conv.q % 4 != 0) work.part_sectors = outputs_of(a.conv) / work.tiles / 16;
  return work;
}

class DirectFma final : public KernelAlgorithmOf<DirectFmaSm80> {
 public:
  DirectFma() : KernelAlgorithmOf("direct_fma_sm80") {}

 private:
  // Every precision: fp32 products are at least as exact.
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support =
            first_refusal({needs_sm80(device), takes_one_type(a, Layout::nchw), fits_extents(a)});
        !support)
      return support;
    const std::int64_t channels = a.c / a.groups;
    const std::int64_t most = channels == 1   ? kMostOfOneChannel
                              : a.groups == 1 ? kMostOfOneGroup
                                              : kMostOfManyGroups;
    if (channels > most || a.r > most || a.s > most || channels * a.r * a.s > most)
      return Support::no(
          fmt::format("it is for sums of few products: {}x{}x{} are more than {}", channels, a.r, a.s, most));
    return Support::yes();
  }

  std::string why_none(const ConvProblem& a, const DeviceInfo& device) const override {
    const DirectFmaSm80 least{.conv = extents_of(a)};
    return fmt::format(
        "its least config needs {} bytes of shared memory (of {}), {} products in straight code (of {}), {} "
        "columns at once (of {}) and {} threads (of {})",
        least.smem_bytes(), target_of(device).smem_per_block, least.products(), DirectFmaSm80::kMostProducts,
        least.window(), DirectFmaSm80::kMostWindow, least.threads(), DirectFmaSm80::kMostThreads);
  }
  Support takes_kernel(const DirectFmaSm80& kernel, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    if (fits(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("at most {} threads (this: {}), about {} registers (this: {}) and {} bytes of shared "
                    "memory (this: {})",
                    DirectFmaSm80::kMostThreads, kernel.threads(), DirectFmaSm80::kMostRegisters,
                    kernel.registers(), target.smem_per_block, kernel.smem_bytes()));
  }

  // It has no launch bound on blocks: what it needs of registers is a guess.
  LaunchPlan launch(const DirectFmaSm80& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, device, {static_cast<unsigned>(kernel.blocks())}, kEpilogueArguments);
    plan.resident_blocks = std::max(
        occupancy(target_of(device), {kernel.threads(), kernel.registers(), kernel.smem_bytes()}).blocks, 1);
    plan.resident_is_a_guess = true;
    return plan;
  }
  TileWork counted(const DirectFmaSm80& kernel) const override { return work_of(kernel); }

  static bool fits(const DirectFmaSm80& kernel, const Target& target) {
    return kernel.valid() && kernel.smem_bytes() <= target.smem_per_block;
  }

  // The best by the estimate.
  std::vector<DirectFmaSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    std::vector<Ranked<DirectFmaSm80>> all;
    const ConvExtents conv = extents_of(a);
    const auto consider = [&](const DirectFmaSm80& kernel) {
      if (fits(kernel, target)) all.push_back({estimated_cycles(kernel, target), kernel});
    };
    const int strips_across = DirectFmaSm80{.conv = conv}.across();
    for (const int filters : {1, 2, 4, 8}) {
      if (filters > 1 && filters > conv.group_filters()) break;
      for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16}) {
        if (rows > conv.p) break;
        for (const int down : parts_of(ceil_div(conv.p, rows)))
          for (const int chunks : parts_of(ceil_div(conv.group_filters(), filters)))
            for (const int units : {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}) {
              const std::int64_t strips = std::int64_t{units} * chunks * down * strips_across;
              if (units > 1 && (down * rows < conv.p || units > conv.n * conv.groups || strips > 512)) break;
              for (const int passes : {1, 2, 3, 4, 8, 16})
                if (passes == 1 || strips / passes >= 32)
                  for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7})
                    if (flags / 2 % 2 == 0 || units * chunks > 1)
                      consider({conv, rows, filters, down, units, chunks, passes, flags / 4 != 0,
                                flags / 2 % 2 != 0, flags % 2 != 0});
            }
      }
    }
    return best_of(std::move(all));
  }
};

}  // namespace

const Algorithm& direct_fma_sm80() {
  return once([] { return DirectFma(); });
}

}  // namespace convtune::cuda
