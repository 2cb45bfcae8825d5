// `implicit_gemm_sm90`: TF32, NCHW, on compute capability 9.0 (implicit_gemm_sm90.cuh). Which problems it
// takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/implicit_gemm_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "problem/activation.h"

namespace convtune::cuda {
namespace {

constexpr int kMostStages = 8;
// Bytes from L2, as the model counts them: those that copies of 16 bytes a thread bring, beside bulk copies;
// and where others are of 4 bytes, those of both. Fitted to 600 candidates of 58 problems on an H200. Weights
// that a cluster shares come into both of its multiprocessors: they count as if it did not.
constexpr double kWideInput = 2.25, kNarrowInput = 0.8, kNarrowWeights = 0.5;
// Copies of 4 bytes take that share of what the model has them take of shared memory, wait so many times as
// long, and keep so many times their lines of L1 while they do: the same fit.
constexpr double kNarrowCopies = 0.85, kNarrowLatency = 3, kNarrowLines = 1.3;
// A cycle, from shared memory of other blocks: measured on an H200.
constexpr double kSharedBytes = 15;
// Waits of the model (150 cycles each) for a batch of residuals from memory: the same.
constexpr double kResidualWaits = 7;

// As many blocks as stay on the device's SMs; those that share sums take one tile each.
unsigned blocks_of(const ImplicitGemmSm90& kernel, int multiprocessors) {
  const long long all = kernel.tiles() * kernel.cluster_blocks();
  return kernel.split > 1 ? static_cast<unsigned>(all) : resident_grid(all, multiprocessors, kernel.cluster);
}

// Bytes of L1 that a block's shared memory leaves, of 256 KB in all: it takes one of these sizes.
double l1_bytes(const ImplicitGemmSm90& a) {
  constexpr double kWhole = 256 << 10, kReserved = 1 << 10;
  for (const int kib : {64, 100, 132, 164, 196})
    if (static_cast<double>(a.smem_bytes()) + kReserved <= kib * 1024.0) return kWhole - kib * 1024.0;
  return kWhole - (228 << 10);
}

// The share of a tile's steps that is not left out, where residues lack the first row: of tiles on average.
double rows_share(const ImplicitGemmSm90& a) {
  const ConvLies& lies = a.conv.lies;
  return lies.whole_h > 0 ? 1 - 1.0 * (lies.residues_h - lies.whole_h) / lies.residues_h / a.conv.r : 1;
}

// A block's tile, or its share of one.
TileWork work_of(const ImplicitGemmSm90& a) {
  const double steps = rows_share(a) * a.steps() / a.split, rows = a.tile_rows();
  const double numbers = steps * rows * a.channels, weights = steps * a.weight_bytes();
  const double groups = steps * a.products() * rows / 64;  // wgmma's
  const double computed = rows * a.filters / a.split * a.spread() / a.abreast(),
               residual = a.conv.residual ? 2 : 1;
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.cluster_blocks();
  work.persistent = a.split == 1;
  work.clusters = a.cluster_blocks() > 1;
  work.wgmma = work.load_beside = true;
  work.tma = a.wide_input();  // 16 bytes at a time ask as little of warps
  work.load_warps = 4;
  work.in_flight_bytes = (a.stages - 1.0) * a.stage_bytes();
  if (a.wide_input()) {
    work.load.instructions = numbers / 128 * 3 + steps * a.team_threads() / 32 * 60;
    work.load.wavefronts = numbers / 32 + weights / 128;
    work.load.l2_bytes = kWideInput * 4 * numbers + weights;
  } else {  // columns between taps come along in their sectors, and taps of a row find them in L1
    const double along = std::min(a.conv.stride_w, 8), found = std::min(a.conv.s, 3);
    // Instructions of a copy: where a group ends within a step, each asks whether its channel is there. (So
    // do those of a layer of one group, by which the other numbers here were fitted as they are.)
    const double each = a.conv.groups == 1 || a.conv.group_channels() % a.channels == 0 ? 3 : 5.3;
    work.load.instructions = numbers / 32 * each + steps * a.team_threads() / 32 * 60;
    work.load.wavefronts = weights / 128;
    work.load.l2_bytes = kNarrowInput * 4 * numbers * along / found + kNarrowWeights * weights;
    work.copies = kNarrowCopies * numbers / 32 * each / 3;
    // Lines that L1 has no room for cannot be on their way, whatever the ring has. And a team that has one
    // slot asks for nothing while that is read.
    const double ahead = a.stages - (a.stages == a.teams() ? 2 : 1);
    const double lines = kNarrowLines * ahead * a.input_bytes() * along;
    work.in_flight_bytes = ahead * a.stage_bytes() / kNarrowLatency * std::min(1.0, l1_bytes(a) / lines);
  }
  work.multiply.products = groups * a.filters / 2;
  work.multiply.instructions = groups * 4 * (14.0 + 8.0 / a.row_blocks) + steps * a.consumers * 4 * 12;
  work.multiply.wavefronts = groups * (16 + a.filters / 4.0);
  work.multiply.waits = 1 + 0.1 * steps;
  Phase store;
  store.instructions = computed / 32 * (a.wide_output() ? 4 : 8) * residual;
  store.wavefronts = computed / 32 * 2;
  store.l2_bytes = a.conv.residual ? 4 * computed : 0;
  store.waits = 3.0 * a.parts() / a.split;  // each part is gathered, then read again
  if (a.conv.residual && a.parts_ahead() == 0) store.waits += kResidualWaits * a.batches() / a.split;
  if (a.split > 1) {  // every sum once to shared memory, and those of a block's parts from all blocks
    const double mine = rows * ceil_div(a.parts(), a.split) * std::min(a.stored_filters(), a.filters);
    store.instructions += rows * a.filters / 32 + mine * a.split / 32;
    store.wavefronts += rows * a.filters / 32 + mine * a.split * 4 / kSharedBytes;
    store.waits += 8;
  }
  add_store(work, store, a.ping_pong);
  const bool scattered = a.conv.lies.between() && a.spread() < a.conv.lies.stride_w;
  store_in_pieces(work, outputs_of(a.conv) / work.tiles * a.spread() / a.abreast(),
                  a.wide_output() ? a.tile_rows()
                  : scattered     ? 1
                                  : a.warp_pixels() * a.spread());
  return work;
}

// Filters of a tile that leave few idle: a part of them all, and what multiplies best.
std::set<int> filters_of(int k) {
  std::set<int> some;
  const auto add = [&](int filters) {
    if (filters > 128)
      some.insert(std::min(round_up(filters, 32), 256));
    else
      some.insert(filters <= 8 ? 8 : filters > 16 && filters <= 24 ? 24 : round_up(filters, 16));
  };
  for (int blocks = 1; blocks <= 8; ++blocks)
    if (const int part = ceil_div(k, blocks); part <= 256) add(part);
  for (const int filters : {64, 96, 128, 192, 256})
    if (filters < k) add(filters);
  return some;
}

// Fewer channels leave most of a product idle, and depthwise layers have kernels of their own.
Support takes_groups_of_eight(const ConvProblem& a) {
  constexpr std::int64_t kLeast = 8;
  if (a.groups == 1 || a.c / a.groups >= kLeast) return Support::yes();
  return Support::no(
      fmt::format("it is for groups of {} channels and more, not of {}", kLeast, a.c / a.groups));
}

class ImplicitGemmTf32 final : public KernelAlgorithmOf<ImplicitGemmSm90> {
 public:
  ImplicitGemmTf32() : KernelAlgorithmOf("implicit_gemm_sm90") {}

 private:
  bool has_depth() const override { return true; }
  bool stores_between() const override { return true; }
  Cut cut() const override { return {.joined = true, .grouped = true, .bare = true}; }
  bool fills_rows(std::int64_t residues) const override { return residues <= 4; }
  static ImplicitGemmSm90 plain(const Computed& a) {
    return {.conv = extents_of(a), .channels = 16, .fills_rows = a.fills_rows};
  }
  ImplicitGemmSm90 kernel_of(const Computed& a, const Config& config) const override {
    return from_config(config, plain(a));
  }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    const Abilities& abilities =
        once([] { return Abilities{.activations = all_activations(), .residual = true, .depth = true}; });
    return first_refusal({needs_sm90(device), within(abilities, a), takes_layout(a, Layout::nchw),
                          takes_tf32(a), takes_groups_of_eight(a), takes_channels_from(8, a),
                          fits_extents(a)});
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "its pixels, tiles or steps are too many to be counted in 30 bits";
  }
  Support takes_kernel(const ImplicitGemmSm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "consumers and row_blocks 1 or 2, with at most 128 sums of a thread; filters 8, 24, a multiple of 16 "
        "up to 128, then of 32; channels a multiple of 16 up to 64; stages 2 to {}; cluster 1 or 2; "
        "ping_pong with 2 consumers, no split; a split of at most {} steps without a cluster, whose sums fit "
        "into the stages; and {} bytes of shared memory",
        kMostStages, kernel.steps(), sm90_smem_per_block()));
  }
  LaunchPlan launch(const ImplicitGemmSm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = kTensorArguments;
    arguments.insert(arguments.end(), {Argument(Pointer{Operand::residual}), Argument(Turn{})});
    return going_on(plan_of(kernel, device, {blocks_of(kernel, device.units)}, std::move(arguments)),
                    kernel.split > 1 ? 0 : kernel.cluster);
  }
  TileWork counted(const ImplicitGemmSm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const ImplicitGemmSm90& a) const override {
    return 2.0 * static_cast<double>(a.tiles()) * a.cluster * a.tile_rows() * a.filters * a.steps() *
           rows_share(a) * a.channels;
  }
  std::optional<StageView> stages(const ImplicitGemmSm90& kernel) const override {
    return stages_alone(kernel);
  }

  // The best by the model of time, each with as many stages as there is room for. Of pixels that are copied
  // one by one an even number, so that more than one team loads; and fewer, which leave more to L1. Stages of
  // 16 channels measured best.
  std::vector<ImplicitGemmSm90> configs(const Computed& a, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    std::vector<Ranked<ImplicitGemmSm90>> ranked;
    const auto add = [&](ImplicitGemmSm90 kernel) {
      const bool wide = kernel.wide_input();
      bool fits = false;
      for (kernel.stages = kMostStages; kernel.stages >= (fits ? 4 : 2); kernel.stages -= wide ? 1 : 2) {
        if (!kernel.valid(sm90_smem_per_block())) continue;
        const BlockNeeds block{kernel.threads(), 0, kernel.smem_bytes()};
        if (kernel.split > 1 && kernel.tiles() * kernel.split > clustered_blocks(target, block, kernel.split))
          return;
        ranked.push_back(timed(kernel, a, target, blocks_of(kernel, device.units)));
        fits = true;
        if (wide) return;
      }
    };
    ImplicitGemmSm90 kernel = plain(a);
    std::set<int> some = filters_of(kernel.section_filters());
    if (kernel.conv.lies.residues_w == 3) some.insert({24, 48});  // multiples of 3
    for (const int filters : some)
      for (const auto& [consumers, row_blocks, ping_pong] : {std::tuple{2, 2, false},
                                                             {2, 1, false},
                                                             {2, 2, true},
                                                             {2, 1, true},
                                                             {1, 2, false},
                                                             {1, 1, false}}) {
        kernel.filters = filters, kernel.consumers = consumers, kernel.row_blocks = row_blocks;
        kernel.ping_pong = ping_pong, kernel.cluster = kernel.split = 1;
        add(kernel);
        kernel.cluster = 2;
        if (kernel.row_tiles() > 1) add(kernel);
        kernel.cluster = 1;
        for (const int split : {2, 4, 8}) {
          kernel.split = split;
          add(kernel);
        }
      }
    return best_of(std::move(ranked));
  }
};

}  // namespace

const Algorithm& implicit_gemm_sm90() {
  return once([] { return ImplicitGemmTf32(); });
}

}  // namespace convtune::cuda
