// `weight_gradient_tf32_sm80`: gradients of weights of f32 tensors in both layouts, in TF32, on tensor cores
// of compute capability 8.0 and up (weight_gradient_tf32_sm80.cuh). Which problems it takes, its search
// space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_tf32_sm80/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

// A tile of dy, with what it meets of x.
TileWork work_of(const WeightGradientTf32Sm80& a) {
  const ConvExtents& conv = a.conv;
  const double warps = a.warps(), products = a.products();
  const double channels = 8.0 * a.octets, pixels = 1.0 * a.input_rows() * a.input_columns();
  const double inputs = channels * pixels, gradients = 1.0 * a.rows * a.columns * a.filters;
  const double real_channels = conv.c / (channels * a.column_chunks());
  const double real_filters = 1.0 * conv.k / (1.0 * a.filters * a.row_chunks());
  const double real_pixels = 1.0 * conv.p * conv.q / (1.0 * a.bands() * a.rows * a.sides() * a.columns);
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.chunks();
  work.persistent = true, work.load_beside = a.stages > 1;
  work.load.instructions = (gradients / a.gradient_words() + inputs / a.input_words()) / 32 * 18;
  work.load.wavefronts = (gradients + inputs) / 32;
  work.load.l2_bytes = 4 * (gradients * real_filters * real_pixels + inputs * real_channels);
  work.load.waits = 1;
  work.in_flight_bytes = std::max(1, a.stages - 1) * work.load.l2_bytes;
  const double of_warp = a.sixteens() * (a.eights() + (a.bias ? 2.0 / (a.warps_o * a.warps_r) : 0));
  const bool apart = WeightGradientTf32Sm80::apart(conv.stride_w * a.input_pixel(), a.input_channel());
  work.multiply.products = warps * products * of_warp;
  work.multiply.instructions = warps * products * (of_warp + 8.0 * a.sixteens() + 4.0 * a.eights() + 14);
  work.multiply.wavefronts = warps * products * (4.0 * a.sixteens() + 2.0 * a.eights() * (apart ? 1 : 2));
  work.multiply.waits = 1;
  work.stored_bytes = 16.0 * a.chunk_fours() * a.split / static_cast<double>(a.tiles());
  work.pieces = work.stored_bytes / 512;
  count_sums(work, static_cast<double>(a.partial_words()),
             1.0 * size_of(a.w_type) * static_cast<double>(a.conv.weights()));
  return work;
}

// Columns of a tile: all, a half, a quarter, or an eighth of a row, as far as they are few.
std::vector<int> columns_of(const ConvExtents& conv) {
  std::vector<int> columns;
  for (const int sides : {1, 2, 4, 8})
    if (const int some = round_up(ceil_div(conv.q, sides), 8);
        some <= 64 && std::find(columns.begin(), columns.end(), some) == columns.end())
      columns.push_back(some);
  if (columns.empty()) columns.push_back(64);
  return columns;
}

// Every valid config worth a try.
std::vector<WeightGradientTf32Sm80> configs_of(const WeightGradientTf32Sm80& plain, const Target& target) {
  std::vector<WeightGradientTf32Sm80> configs;
  const ConvExtents& conv = plain.conv;
  const auto add = [&](WeightGradientTf32Sm80 kernel) {
    if (!kernel.possible() || kernel.smem_bytes() > target.smem_per_block) return;
    kernel.blocks = lesser(most_blocks(kernel, target), 8);
    if (kernel.blocks < 1) return;
    const long long room = std::max(1LL * target.multiprocessors * kernel.blocks / kernel.chunks(), 1LL);
    const long long split = std::min({room, kernel.tiles(), 1LL * WeightGradientTf32Sm80::kMostSplit});
    // As few blocks as need no more turns.
    kernel.split = static_cast<int>(ceil_div(kernel.tiles(), ceil_div(kernel.tiles(), split)));
    if (kernel.valid(target.smem_per_block)) configs.push_back(kernel);
  };
  const std::vector<int> columns = columns_of(conv);
  WeightGradientTf32Sm80 kernel = plain;
  const auto with_warps = [&](int warps_m, int warps_o, int warps_r) {
    const int warps = warps_m * warps_o * warps_r;
    if (warps > 16 || (warps < 4 && kernel.filters * kernel.octets > 64)) return;
    kernel.warps_m = warps_m, kernel.warps_o = warps_o, kernel.warps_r = warps_r;
    if (!kernel.possible()) return;
    for (const int some : columns)
      for (const int rows : {1, 2, 4, 7, 8})
        for (const int stages : {2, 3}) {
          if (rows > conv.p) continue;
          kernel.columns = some, kernel.rows = rows, kernel.stages = stages;
          add(kernel);
        }
  };
  for (const int filters : {16, 32, 64, 128, 256})
    for (const int octets : {1, 2, 4, 8, 16}) {
      if (filters >= 2 * round_up(conv.k, 16) || octets >= 2 * ceil_div(conv.c, 8)) continue;
      kernel.filters = filters, kernel.octets = octets;
      for (int warps_m = 1; warps_m <= lesser(filters / 16, 8); warps_m *= 2)
        for (int warps_o = 1; warps_o <= lesser(octets, 8); warps_o *= 2) {
          kernel.rows = 1, kernel.columns = 8;
          with_warps(warps_m, warps_o, 1);
          if (conv.r > 1) with_warps(warps_m, warps_o, conv.r);
        }
    }
  return configs;
}

class WeightGradientTf32 final : public KernelAlgorithmOf<WeightGradientTf32Sm80> {
 public:
  WeightGradientTf32() : KernelAlgorithmOf("weight_gradient_tf32_sm80") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm80(device), takes_gradients_of_weights(a), takes_tf32(a),
                                         takes_one_group(a), fits_extents(a)});
        !support)
      return support;
    if (a.dtype.x != DType::f32) return Support::no("it is for x and dy in f32");
    if (a.r * a.s > WeightGradientTf32Sm80::kMostTaps)
      return Support::no(fmt::format("it is for filters of up to {} taps, not for {}",
                                     WeightGradientTf32Sm80::kMostTaps, a.r * a.s));
    return Support::yes();
  }
  WeightGradientTf32Sm80 kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static WeightGradientTf32Sm80 plain_of(const ConvProblem& problem) {
    return {.conv = extents_of(problem), .w_type = element_type_of(problem.dtype.w), .bias = problem.bias};
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "no tile of 8 pixels leaves a warp room for its sums and a block for what it meets, or its pixels "
           "or tiles are too many to be counted in 30 bits";
  }
  std::vector<WeightGradientTf32Sm80> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<WeightGradientTf32Sm80>> ranked;
    const Target target = target_of(device);
    for (const WeightGradientTf32Sm80& kernel : configs_of(plain_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }
  Support takes_kernel(const WeightGradientTf32Sm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          fmt::format("columns are a multiple of 8, filters of 16 warps_m, warps_o divides octets and "
                      "warps_r filter rows, "
                      "with at most 16 warps of {} sums a thread",
                      WeightGradientTf32Sm80::kMostSums));
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("a split of at most {}, {}", kernel.tiles(), needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const WeightGradientTf32Sm80& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, sums_arguments());
    add_up_behind(plan, kernel.partial_words(), blocks_of_fours(kernel.rank_fours(), kernel.split),
                  kAddThreads);
    return plan;
  }
  TileWork counted(const WeightGradientTf32Sm80& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& weight_gradient_tf32_sm80() {
  return once([] { return WeightGradientTf32(); });
}

}  // namespace convtune::cuda
