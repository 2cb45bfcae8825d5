// `weight_gradient_half_sm90`: the gradient of weights in half precision, channels last, on compute
// capability 9.0 (weight_gradient_half_sm90.cuh), and `weight_gradient_half_nchw_sm90`, in NCHW as it lies.
// Which problems they take, their search spaces, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_half_sm90/config.h"
#include "cuda/algorithms/weight_gradient_half_sm90/weight_gradient_maps.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"

namespace convtune::cuda {
namespace {

constexpr int kMostWgradStages = 8;
constexpr double kSumsPiece = 8;  // that a warp stores in one place at one time

Support takes_half_gradient(const ConvProblem& problem) {
  const Abilities& abilities = once([] {
    return Abilities{.types = {DType::f16, DType::bf16},
                     .f32_bias = true,
                     .activations = {Activation::none},
                     .depth = true,
                     .directions = {Direction::backward_weights}};
  });
  return within(abilities, problem);
}

// Parts of tiles that all blocks have together.
double parts_of_tiles(const WeightGradientHalfSm90& a) {
  double parts = 0;
  for (int tile = a.whole; tile < a.tiles(); ++tile) parts += a.last_sharer(tile) - a.first_sharer(tile) + 1;
  return parts;
}

// Blocks that have as much of each tile read the same pixels at the same time; else loads take as long as of
// so many times the bytes. Measured on an H200, as is what two stages cost: 474 trials of 24 layers.
constexpr double kOfUneven = 1.3;
constexpr long long kFewPixels = 1024;

// The time of a copy of dw behind a plan that stores it as [K][C][T][R][S], where weights lie channels last,
// as they do in PyTorch's steps: what 29 MB took behind layers of few pixels, an H200. Those of more are not
// known.
double copying_us(const WeightGradientHalfSm90& a) {
  constexpr double kLaunch = 2.5, kBytesOfUs = 0.75e6;
  if (a.whole == 0 || a.joint || a.planes || a.all_pixels() > kFewPixels) return 0;
  return kLaunch + 2 * static_cast<double>(a.conv.weights()) / kBytesOfUs;
}

// A block's whole tiles, and its share of all other chunks. The second kernel reads all partial sums and
// writes their gradients.
TileWork work_of(const WeightGradientHalfSm90& a) {
  const double whole = ceil_div(a.whole, a.blocks);
  const double steps = whole * static_cast<double>(a.chunks()) + static_cast<double>(a.work()) / a.blocks;
  const int boxes = a.window > 0 ? 1 : a.tile_blocks();
  const double idle = a.window > 0 ? 0  // part of the columns, which is not loaded
                                   : 1 - 1.0 * a.all_blocks() / (a.column_tiles() * a.tile_blocks());
  const double loaded = steps * (a.gradient_bytes() + (1 - idle) * a.input_bytes());
  const double groups = steps * a.positions() / 16 * a.row_blocks * a.consumers();  // wgmma's
  const double parts = parts_of_tiles(a), sums = 1.0 * a.tile_rows() * a.tile_columns();
  const bool is_even = a.whole > 0 || a.blocks % a.tiles() == 0;
  TileWork work;
  work.tiles = a.blocks;
  work.wgmma = work.tma = true;
  work.load_beside = a.planes || a.stages > 2 || a.early;  // with two stages a step waits for its load
  work.load_warps = 4;
  work.in_flight_bytes = (a.stages - 1.0) * a.stage_bytes();
  work.load.instructions = steps * (40 + 8.0 * (boxes + a.tile_rows() / a.kBlock));
  work.load.wavefronts = steps * a.stage_bytes() / 128;
  work.load.l2_bytes = loaded * (is_even ? 1 : kOfUneven);
  if (a.planes) {
    const bool images = !a.has_whole_planes();  // which are read by halves
    const double slices = steps * a.stage_slices(), pieces = slices * a.slice_bytes() / 1024;
    work.in_flight_bytes = (a.slice_places() - 1.0) * a.slice_bytes();
    work.load.instructions = slices * 40 + pieces * (images ? 90 : 60);
    work.load.wavefronts = (images ? 4 : 3) * slices * a.slice_bytes() / 128;
    work.load.l2_bytes = slices * a.slice_bytes();
  }
  work.multiply.products = groups * a.columns / 2;
  work.multiply.instructions = groups * 4 * 4 + steps * a.consumers() * 4 * 12;
  // Measured on an H200, products of 64 columns take half as long again.
  work.multiply.wavefronts = groups * (16 + a.columns / 4.0) * (a.columns == 64 ? 1.5 : 1);
  work.multiply.waits = 1 + 0.1 * steps;
  const double stored = parts / a.blocks * sums;
  work.store.instructions = stored / 64 * 3;
  store_in_pieces(work, stored, kSumsPiece);
  work.store.instructions += whole * (sums / 32 * 3 + sums / 256 * 12);
  work.store.wavefronts += whole * (sums / 32 + sums / 64);
  work.store.waits += whole * 4 * a.row_blocks;
  work.stored_bytes += whole * 2 * sums;
  if (a.joint) return work;
  count_sums(work, parts * sums, 2.0 * static_cast<double>(a.conv.weights()) * a.split_tiles() / a.tiles());
  return work;
}

// Warpgroups that multiply, and what each has.
struct WgradShape {
  int filter_groups, column_groups, row_blocks, columns;
};
constexpr WgradShape kWgradShapes[] = {
    {2, 1, 1, 256}, {1, 2, 1, 256}, {2, 1, 2, 128}, {1, 2, 2, 128}, {2, 1, 1, 192}, {1, 2, 1, 192},
    {3, 1, 1, 192}, {1, 3, 1, 192}, {2, 1, 1, 128}, {1, 2, 1, 128}, {1, 3, 1, 128}, {3, 1, 1, 128},
    {2, 1, 2, 64},  {2, 1, 1, 64},  {1, 2, 1, 64},  {1, 3, 1, 64},  {1, 2, 2, 64},  {1, 1, 1, 64},
    {1, 1, 1, 128}, {1, 1, 1, 192}, {1, 1, 1, 256}};

class WeightGradientHalf : public KernelAlgorithmOf<WeightGradientHalfSm90> {
 public:
  explicit WeightGradientHalf(std::string name = "weight_gradient_half_sm90")
      : KernelAlgorithmOf(std::move(name)) {}

 protected:
  virtual WeightGradientHalfSm90 plain_of(const Computed& a) const {
    return {.conv = extents_of(a), .bias = a.bias};
  }
  virtual Layout layout() const { return Layout::nhwc; }
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  bool has_depth() const override { return true; }
  WeightGradientHalfSm90 kernel_of(const Computed& a, const Config& config) const override {
    return from_config(config, plain_of(a));
  }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support =
            first_refusal({needs_sm90(device), takes_half_gradient(a), takes_layout(a, layout()),
                           takes_one_group(a), takes_channels_in_eights(a), fits_extents(a)});
        !support)
      return support;
    if (a.n == 0) return Support::no("a batch of 0 has no pixels to sum over");
    if (a.k % 8 != 0)
      return Support::no(fmt::format("it is for multiples of 8 output channels, not for {}", a.k));
    if (a.t * a.r * a.s > WeightGradientHalfSm90::kMostTaps)
      return Support::no(fmt::format("it is for filters of up to {} taps, not for {}",
                                     WeightGradientHalfSm90::kMostTaps, a.t * a.r * a.s));
    if (!plain_of(a).can_walk())
      return Support::no(
          "TMA walks over images by strides up to 8, from at most 128 pixels outside to at most 128 inside, "
          "and over filters of up to 256 pixels; of several frames from 16 pixels, and of 32");
    return Support::yes();
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "its pixels or tiles are too many to be counted in 30 bits";
  }
  Support takes_kernel(const WeightGradientHalfSm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(fmt::format(
        "columns a multiple of 64 or, with a window, of 32; 32, 64 or 128 pixels; a window for strides and "
        "dilations of 1 and filters of up to 3 rows, with a column_group for each, 64 or 32 columns for each "
        "tap of a row, and 64 pixels; at most 3 warpgroups, and 128 sums of a thread (96 with 3 warpgroups); "
        "stages 2 to {}; whole tiles with a window and filters of one frame, at most {}; at most {} blocks, "
        "as many as there are whole tiles, or else chunks of pixels; "
        "partial sums of at most {} bytes where blocks share tiles; and {} bytes of shared memory",
        kMostWgradStages, kernel.tiles(),
        kernel.whole > 0 ? static_cast<long long>(kernel.whole) : kernel.work(), kMostPartialBytes,
        sm90_smem_per_block()));
  }
  LaunchPlan launch(const WeightGradientHalfSm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = sums_arguments(), order;
    arguments.insert(arguments.begin(), weight_gradient_maps(kernel));
    for (const Operand gradient : {Operand::dw, Operand::dbias})
      arguments.push_back(Pointer{gradient, "void*"});
    // Whole tiles that a second kernel looks at are stored as [K][C][T][R][S].
    if (!kernel.planes) order.push_back(kernel.whole == 0 || kernel.joint ? Argument(DwLast{}) : Argument(0));
    arguments.insert(arguments.end(), order.begin(), order.end());
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device, {static_cast<unsigned>(kernel.blocks)},
                              std::move(arguments));
    if (kernel.joint)
      plan.pack.clear();
    else
      add_up_behind(plan, kernel.partial_words(),
                    {static_cast<unsigned>(kernel.behind_blocks()), kernel.bias ? 2u : 1u}, kAddThreads,
                    order);
    return plan;
  }
  TileWork counted(const WeightGradientHalfSm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const WeightGradientHalfSm90& a) const override {
    return 2.0 * a.tiles() * static_cast<double>(a.chunks()) * a.positions() * a.tile_rows() *
           a.tile_columns();
  }
  std::optional<StageView> stages(const WeightGradientHalfSm90& kernel) const override {
    return stages_alone(kernel);
  }

  // A block a multiprocessor; or as many of them as share tiles evenly; or a block a tile.
  static std::set<int> blocks_of(const WeightGradientHalfSm90& kernel, int multiprocessors) {
    std::set<int> some = {multiprocessors};
    const int tiles = kernel.tiles();
    if (tiles <= multiprocessors)
      some.insert(multiprocessors / tiles * tiles);
    else if (tiles <= WeightGradientHalfSm90::kMostBlocks)
      some.insert(tiles);
    std::set<int> possible;
    for (const int blocks : some)
      possible.insert(static_cast<int>(std::min<long long>(blocks, kernel.work())));
    return possible;
  }

  // Tiles that blocks have whole: as many of each as each can have, or all of them.
  static std::set<int> wholes_of(const WeightGradientHalfSm90& kernel, int blocks) {
    std::set<int> some = {0, kernel.tiles() / blocks * blocks};
    if (kernel.tiles() > blocks) some.insert(kernel.tiles());
    return some;
  }

  // Rows of a stage that leave few positions idle, of which two stages have room.
  static std::vector<int> windows_of(WeightGradientHalfSm90 kernel) {
    std::vector<Ranked<int>> ranked;
    for (kernel.window = 1, kernel.stages = 2; kernel.window <= 16; ++kernel.window)
      if (kernel.valid(sm90_smem_per_block()))
        ranked.push_back({static_cast<double>(kernel.chunks() * kernel.positions()), kernel.window});
    return best_of(std::move(ranked), kMostWindows);
  }
  static constexpr std::size_t kMostWindows = 4;

  // The best by the model of time, each with as many stages as there is room for.
  std::vector<WeightGradientHalfSm90> configs(const Computed& a, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    std::vector<Ranked<WeightGradientHalfSm90>> ranked;
    const auto add = [&](WeightGradientHalfSm90 kernel, int least_stages, int most_stages) {
      if (kernel.all_pixels() >= WeightGradientHalfSm90::kInt) return;
      for (const int blocks : blocks_of(kernel, device.units))
        for (const int whole : wholes_of(kernel, blocks)) {
          if (whole > 0 && (kernel.window == 0 || kernel.conv.t > 1)) continue;
          kernel.blocks = blocks, kernel.whole = whole, kernel.stages = most_stages;
          kernel.joint = 0;
          while (kernel.stages >= least_stages && !kernel.valid(sm90_smem_per_block())) --kernel.stages;
          if (kernel.stages < least_stages) continue;
          kernel.joint = kernel.can_be_joint() ? 1 : 0;
          for (kernel.early = 0; kernel.early <= (kernel.window > 0 && !kernel.planes); ++kernel.early) {
            ranked.push_back(timed(kernel, a, target, kernel.blocks));
            ranked.back().cost += copying_us(kernel);
          }
          kernel.early = kernel.joint = 0;
          if (kernel.tiles() < blocks) break;
        }
    };
    WeightGradientHalfSm90 kernel = plain_of(a);
    for (const WgradShape& shape : kWgradShapes) {
      if (kernel.planes) break;
      for (const int pixels : {64, 128, 32}) {
        kernel.filter_groups = shape.filter_groups, kernel.column_groups = shape.column_groups;
        kernel.row_blocks = shape.row_blocks, kernel.columns = shape.columns, kernel.pixels = pixels;
        // Half of it or more is idle.
        if (kernel.tile_rows() > 64 && kernel.row_tiles() * kernel.tile_rows() >= 2 * kernel.conv.k) continue;
        if (kernel.tile_blocks() > 1 &&
            kernel.column_tiles() * kernel.tile_blocks() >= 2 * kernel.all_blocks())
          continue;
        add(kernel, 2, kMostWgradStages);
      }
    }
    std::vector<std::vector<WeightGradientHalfSm90>> kinds;
    const auto end_kind = [&] {
      kinds.push_back(best_of(std::move(ranked), kMostCandidates, kHopeless));
      ranked.clear();
    };
    end_kind();
    if (!kernel.can_have_window()) return kinds.front();
    kernel.pixels = 64, kernel.column_groups = kernel.conv.r;
    // Windows of 32 channels leave half of the sums, and have more tiles. On an H200 they took 4 to 15 % less
    // with up to 128 channels, and with 512 and 640, but 2 to 5 % more with 256 and 320: a first guess has
    // none of more. Of fewer than 32 they took longer (24: 112 us, and 92 by weight_gradient_sm80): TMA
    // brings them no faster.
    const bool has_narrow = kernel.conv.c % 32 == 0 && !kernel.planes;
    const bool leads = kernel.conv.c % 64 == 32 || kernel.conv.c <= kMostLeading;
    for (const int channels : {64, 32}) {
      if (channels == 32 && !has_narrow) break;
      for (kernel.columns = channels * kernel.conv.s, kernel.filter_groups = 1; kernel.filter_groups <= 3;
           ++kernel.filter_groups)
        for (kernel.row_blocks = 1; kernel.row_blocks <= 2; ++kernel.row_blocks) {
          kernel.blocks = 1;
          for (const int window : windows_of(kernel)) {
            kernel.window = window;
            // Two stages leave room for long slices.
            add(kernel, 2, kernel.planes ? 2 : kMostWgradStages);
            if (kernel.planes) add(kernel, 3, 3);
          }
          kernel.window = 0;
        }
      if (channels == 32 || !has_narrow || !leads) end_kind();
    }
    // The model orders those of a kind well, and one kind beside the other less so: a search has all.
    const auto cost = [&](const auto& list) {
      return list.empty()
                 ? std::numeric_limits<double>::infinity()
                 : timed(list.front(), a, target, list.front().blocks).cost + copying_us(list.front());
    };
    if (cost(kinds[1]) <= cost(kinds[0])) std::swap(kinds[0], kinds[1]);
    std::vector<WeightGradientHalfSm90> all;
    for (std::size_t i = 0; i < kMostCandidates; ++i)
      for (const auto& list : kinds)
        if (i < list.size() && all.size() < kMostCandidates) all.push_back(list[i]);
    return all;
  }
  static constexpr int kMostLeading = 128;  // channels
};

class WeightGradientHalfNchw final : public WeightGradientHalf {
 public:
  WeightGradientHalfNchw() : WeightGradientHalf("weight_gradient_half_nchw_sm90") {}

 private:
  WeightGradientHalfSm90 plain_of(const Computed& a) const override {
    return {.conv = extents_of(a), .bias = a.bias, .planes = true};
  }
  Layout layout() const override { return Layout::nchw; }
  ChannelsLast channels_last() const override { return {}; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = WeightGradientHalf::takes(a, device); !support) return support;
    const WeightGradientHalfSm90 kernel = plain_of(a);
    if (!kernel.has_whole_planes() && kernel.conv.t * kernel.conv.d * kernel.conv.z > 1)
      return Support::no(
          fmt::format("TMA's planes of frames are multiples of 8 pixels, not {} of x and {} of y", a.h * a.w,
                      a.p() * a.q()));
    if (!kernel.can_have_window())
      return Support::no(
          "it is for filters of up to 3 rows of up to 4, not 1x1, without strides or dilations, and rows of "
          "up to 256 pixels with their padding");
    return Support::yes();
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "two stages of its rows have no room, or its pixels or tiles are more than 30 bits count";
  }
};

}  // namespace

const Algorithm& weight_gradient_half_sm90() {
  return once([] { return WeightGradientHalf(); });
}

const Algorithm& weight_gradient_half_nchw_sm90() {
  return once([] { return WeightGradientHalfNchw(); });
}

}  // namespace convtune::cuda
