// `weight_gradient_tf32_sm90`: the gradient of weights of f32 tensors in TF32 on compute capability 9.0, in
// both layouts, some NCHW behind conversions (weight_gradient_tf32_sm90.cuh). Which problems it takes, its
// search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/fork_gate.h"
#include "cuda/algorithms/gradients.h"
#include "cuda/algorithms/weight_gradient_tf32_sm90/config.h"
#include "cuda/launch/add_up_step.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

constexpr int kLeastChannels = 16;  // channels of x and of dy: fewer leave most of a block of 64 idle

// A block's chunks of pixels.
TileWork work_of(const WeightGradientTf32Sm90& a) {
  const double steps = static_cast<double>(ceil_div(a.chunks(), 1LL * a.split));
  const double gradients = 1.0 * a.positions() * a.tile_rows();
  const double inputs = 1.0 * a.input_rows() * a.row_fours() * a.tile_channels();  // fours of pixels
  // Words of a lane for four pixels of x, and how many lanes meet at a bank.
  const double read = a.flat_planes() ? 4 : a.planes ? 8 : a.met_columns();
  const double gradients_meet = a.planes && !a.flat() ? gcd(a.rows, 8) : 1;
  const double inputs_meet = a.planes && !a.flat() ? gcd(a.input_rows(), 8) : 1;
  const double slices = a.slices();
  const double loaded =
      1.0 * a.gradient_slices() * a.gradient_slice_bytes() + 1.0 * a.input_slices() * a.input_slice_bytes();
  const double groups = a.positions() / 8.0 * a.row_blocks * a.consumers();  // wgmma's
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.wgmma = work.tma = work.load_beside = true;
  work.load_warps = a.transposing_warps();
  work.in_flight_bytes = (a.slice_places() - 2.0) * a.slice_bytes();
  // Turns of a warp: two fours of pixels, or two rows of planes, of 64 filters or channels.
  const int at_once = 2 * a.transposing_warps();
  const auto turns = [&](int count, int rows) {
    return 1.0 * count * ceil_div(a.planes ? rows : rows * a.row_fours(), at_once);
  };
  const double of_gradients = turns(a.gradient_slices(), a.planes ? a.rows : a.gradient_slice_rows()) *
                              (a.planes ? 1 : a.tile_rows() / 64);
  const double of_inputs = turns(a.input_slices(), a.planes ? a.input_rows() : a.input_slice_rows()) *
                           (a.planes ? 1 : a.channel_blocks);
  work.load.instructions =
      steps * a.transposing_warps() * (50 * slices + 70 * of_gradients + (40 + 33.0 * a.conv.s) * of_inputs);
  work.load.wavefronts = steps * (loaded / 128 + gradients / 32 * (gradients_meet + 1) +
                                  inputs / 32 * (read * inputs_meet + 4 * a.conv.s));
  work.load.l2_bytes = steps * loaded;
  work.multiply.products = steps * groups * a.row_columns() / 2;
  work.multiply.instructions = steps * (groups * 4 * 4 + a.consumers() * 4 * 12);
  work.multiply.wavefronts = steps * groups * (16 + a.row_columns() / 4.0);
  work.multiply.waits = 1 + 0.1 * steps;
  const auto sums = static_cast<double>(a.tile_words());
  work.store.instructions = sums / 64 * 5;
  store_in_pieces(work, sums, 8);
  count_sums(work, static_cast<double>(a.partial_words()),
             1.0 * size_of(a.w_type) * static_cast<double>(a.conv.weights()));
  return work;
}

TensorMaps maps_of(const WeightGradientTf32Sm90& kernel) {
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  const auto box = [](int value) { return static_cast<std::uint32_t>(value); };
  constexpr std::string_view kMaps = "convtune::weight_gradient_tf32_sm90::Maps";
  const ConvExtents& a = kernel.conv;
  const auto map_of = [&](int channels, int width, int height, int of_tile, int columns, int rows) {
    const std::uint64_t pixel = 4 * wide(channels), row = pixel * wide(width), image = row * wide(height);
    if (kernel.planes) {
      const std::uint64_t line = 4 * wide(width), plane = line * wide(height), all = plane * wide(channels);
      return TensorMapLayout{.extents = {wide(width), wide(height), wide(channels), wide(a.n), 1},
                             .strides = {line, plane, all, all * wide(a.n)},
                             .box = {box(columns), box(rows), box(of_tile), 1, 1},
                             .swizzle = columns == 32   ? Swizzle::bytes_128
                                        : columns == 16 ? Swizzle::bytes_64
                                                        : Swizzle::bytes_32};
    }
    if (kernel.flat_batch())
      return TensorMapLayout{.extents = {wide(channels), static_cast<std::uint64_t>(kernel.all_pixels())},
                             .strides = {pixel},
                             .box = {box(of_tile), box(columns * rows)}};
    return TensorMapLayout{.extents = {wide(channels), wide(width), wide(height), wide(a.n), 1},
                           .strides = {pixel, row, image, image * wide(a.n)},
                           .box = {box(of_tile), box(columns), box(rows), 1, 1}};
  };
  if (kernel.planes)
    return {kMaps,
            {{Operand::x,
              {map_of(a.c, kernel.input_width(), kernel.input_height(), kernel.slice_channels(),
                      kernel.plane_input_columns(), kernel.input_rows())}},
             {Operand::dy,
              {map_of(a.k, kernel.width(), kernel.height(), kernel.kBlock, kernel.plane_columns(),
                      kernel.rows)}}}};
  return {
      kMaps,
      {{Operand::x,
        {map_of(a.c, a.w, a.h, kernel.tile_channels(), kernel.input_columns(), kernel.input_slice_rows())}},
       {Operand::dy,
        {map_of(a.k, a.q, a.p, kernel.tile_rows(), kernel.columns, kernel.gradient_slice_rows())}}}};
}

// Columns of a stage: all of a row, or a part of it that is few.
std::set<int> columns_of(const WeightGradientTf32Sm90& plain) {
  if (plain.planes) return {plain.plane_columns()};
  if (plain.flat()) return {8};
  std::set<int> columns = {4, 8, 12, 16};
  for (const int sides : {1, 2, 3, 4}) columns.insert(round_up(ceil_div(plain.conv.q, sides), 4));
  std::erase_if(columns, [&](int some) { return some > 64 || some >= plain.conv.q + 8; });
  return columns;
}

// Every valid config worth a try.
std::vector<WeightGradientTf32Sm90> configs_of(const WeightGradientTf32Sm90& plain, int multiprocessors) {
  std::vector<WeightGradientTf32Sm90> configs;
  WeightGradientTf32Sm90 kernel = plain;
  const auto add = [&] {
    // As many blocks as there are multiprocessors, or twice as many.
    std::set<int> splits;
    for (const int turns : {1, 2}) {
      const long long room = std::max(1LL * turns * multiprocessors / kernel.tiles(), 1LL);
      const long long split = std::min({room, kernel.chunks(), 1LL * WeightGradientTf32Sm90::kMostSplit});
      splits.insert(static_cast<int>(ceil_div(kernel.chunks(), ceil_div(kernel.chunks(), split))));
    }
    for (const int split : splits) {
      kernel.split = split;
      if (kernel.valid(sm90_smem_per_block())) configs.push_back(kernel);
    }
  };
  const std::set<int> columns = columns_of(plain);
  for (kernel.filter_groups = 1; kernel.filter_groups <= 3; ++kernel.filter_groups)
    for (kernel.row_blocks = 1; kernel.row_blocks <= 2; ++kernel.row_blocks)
      for (kernel.channel_blocks = 1; kernel.channel_blocks <= 4; ++kernel.channel_blocks) {
        // Half of it or more is idle.
        if (kernel.tile_rows() > 64 && kernel.tile_rows() >= 2 * kernel.conv.k) continue;
        if (kernel.channel_blocks > 1 && kernel.tile_channels() >= 2 * kernel.conv.c) continue;
        for (const int some : columns)
          for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 16, 28}) {
            if (!kernel.flat() && rows > round_up(kernel.conv.p, 8)) continue;
            kernel.columns = some, kernel.rows = rows, kernel.stages = 2;
            if (!kernel.possible()) continue;
            for (kernel.stages = 4; kernel.stages >= 2; --kernel.stages)
              if (kernel.smem_bytes() <= sm90_smem_per_block()) add();
          }
      }
  return configs;
}

class WeightGradientTf32OfHopper final : public KernelAlgorithmOf<WeightGradientTf32Sm90> {
 public:
  WeightGradientTf32OfHopper() : KernelAlgorithmOf("weight_gradient_tf32_sm90") {}

 private:
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  // Other planes, and 1x1 filters, are converted.
  ChannelsLast channels_last_of(const ConvProblem& a) const override {
    return is_read_as_it_lies(a) ? ChannelsLast{} : channels_last();
  }
  static bool is_read_as_it_lies(const ConvProblem& a) {
    return a.layout == Layout::nchw && !a.has_depth() && fits_extents(a) &&
           WeightGradientTf32Sm90{.conv = extents_of(a)}.can_have_planes();
  }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm90(device), takes_gradients_of_weights(a), takes_tf32(a),
                                         takes_one_group(a), fits_extents(a)});
        !support)
      return support;
    if (a.dtype.x != DType::f32) return Support::no("it is for x and dy in f32");
    if (!is_read_as_it_lies(a))
      if (Support support = takes_layout(a, Layout::nhwc); !support) return support;
    if (a.c % 4 != 0 || a.k % 4 != 0 || a.c < kLeastChannels || a.k < kLeastChannels)
      return Support::no(fmt::format("it is for multiples of 4 channels from {} on, not for {} and {}",
                                     kLeastChannels, a.c, a.k));
    if (a.r > 3 || a.s > 4 || (a.r == 3 && a.s == 4))
      return Support::no(
          fmt::format("it is for filters of up to 3 rows of up "
                      "to 3, or 2 of up to 4, not of {} of {}",
                      a.r, a.s));
    return Support::yes();
  }
  WeightGradientTf32Sm90 kernel_of(const Computed& problem, const Config& config) const override {
    return from_config(config, plain_of(problem));
  }
  static WeightGradientTf32Sm90 plain_of(const Computed& problem) {
    return {.conv = extents_of(problem),
            .w_type = element_type_of(problem.dtype.w),
            .bias = problem.bias,
            .planes = problem.layout == Layout::nchw};
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "no stage of 8 pixels has room beside three slices of what it "
           "meets, or its pixels are too many "
           "to "
           "be counted in 30 bits";
  }
  std::vector<WeightGradientTf32Sm90> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<WeightGradientTf32Sm90>> ranked;
    const Target target = target_of(device);
    for (const WeightGradientTf32Sm90& kernel : configs_of(plain_of(a), device.units))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }
  Support takes_kernel(const WeightGradientTf32Sm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(
        fmt::format("columns a multiple of 4 and pixels of 8, at most 256; "
                    "filter_groups times rows of the filter at "
                    "most "
                    "3, at most 256 filters, 256 columns of a warpgroup, and "
                    "128 sums of a thread (96 with 3 "
                    "warpgroups); in NCHW 8 columns; a split of at most {}; "
                    "partial sums of at most {} bytes where "
                    "blocks share tiles; and "
                    "{} bytes of shared memory",
                    kernel.possible() ? kernel.chunks() : 1, kMostPartialBytes, sm90_smem_per_block()));
  }
  LaunchPlan launch(const WeightGradientTf32Sm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = sums_arguments();
    arguments.insert(arguments.begin(), maps_of(kernel));
    LaunchPlan plan = plan_of(kernel, {.flagged = false}, device,
                              {static_cast<unsigned>(kernel.all_blocks())}, std::move(arguments));
    add_up_behind(plan, kernel.partial_words(),
                  {static_cast<unsigned>(kernel.behind_blocks()), kernel.bias ? 2u : 1u}, kAddThreads);
    return plan;
  }
  TileWork counted(const WeightGradientTf32Sm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const WeightGradientTf32Sm90& a) const override {
    return 2.0 * a.tiles() * static_cast<double>(a.chunks()) * a.positions() * a.tile_rows() *
           a.tile_columns();
  }
  std::optional<StageView> stages(const WeightGradientTf32Sm90& kernel) const override {
    return stages_alone(kernel);
  }
};

}  // namespace

const Algorithm& weight_gradient_tf32_sm90() {
  return once([] { return WeightGradientTf32OfHopper(); });
}

}  // namespace convtune::cuda
