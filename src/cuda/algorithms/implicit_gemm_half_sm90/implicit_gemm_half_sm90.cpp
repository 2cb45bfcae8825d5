// `implicit_gemm_half_sm90`: half precision, channels last, on compute capability 9.0
// (implicit_gemm_half_sm90.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/implicit_gemm_half_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "problem/activation.h"

namespace convtune::cuda {
namespace {

constexpr int kMostStages = 8;

// As many blocks as stay on the device's SMs; those that share sums take one tile each.
unsigned blocks_of(const ImplicitGemmHalfSm90& kernel, int multiprocessors) {
  const long long all = kernel.tiles() * kernel.cluster_blocks();
  return kernel.split > 1 ? static_cast<unsigned>(all) : resident_grid(all, multiprocessors, kernel.cluster);
}

// A block's tile, or its share of one.
TileWork work_of(const ImplicitGemmHalfSm90& a) {
  const double steps = 1.0 * a.steps() / a.split, rows = a.tile_rows();
  // Boxes of a gradient's weights come to a block by itself as soon as to two at once, an H200: but where
  // pixels have no more tiles than filters.
  const bool few_weights = a.row_tiles() > a.filter_blocks();
  const int sharing = a.turned() && few_weights ? 2 : a.cluster;
  const double loaded = steps * (a.input_bytes() + 1.0 * a.weight_bytes() / sharing);
  const double groups = 1.0 * a.all_products() / a.split * rows / 64;  // wgmma's
  const double computed = rows * a.filters / a.split, residual = a.conv.residual ? 2 : 1;
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.cluster_blocks();
  work.persistent = a.split == 1;
  work.clusters = a.cluster_blocks() > 1;
  work.wgmma = work.tma = work.load_beside = true;
  work.load_warps = 4;
  work.in_flight_bytes = (a.stages - 1.0) * a.stage_bytes();
  work.load.instructions = steps * 40;
  work.load.wavefronts = steps * a.stage_bytes() / 128;
  work.load.l2_bytes = loaded;
  work.multiply.products = groups * a.filters / 2;
  work.multiply.instructions = groups * 4 * 4 + steps * a.consumers * 4 * 12;
  work.multiply.wavefronts = groups * (16 + a.filters / 4.0);
  work.multiply.waits = 1 + 0.1 * steps;
  Phase store;
  store.instructions = computed / 32 * 6 * residual;
  store.wavefronts = computed / 32 * 1 * residual;
  store.l2_bytes = a.conv.residual ? 2 * computed : 0;
  if (a.split > 1) {  // every sum once to shared memory, and once from all blocks: 8 bytes a cycle
    store.instructions += rows * a.filters / 32 * 2;
    store.wavefronts += rows * a.filters / 2;
    store.waits = 4;
  }
  add_epilogue(store, a.conv, computed);
  add_store(work, store, a.ping_pong);
  store_in_pieces(
      work, outputs_of(a.conv) / work.tiles,
      std::min<double>(ImplicitGemmHalfSm90::kStoredFilters, std::min(a.filters, a.conv.group_filters())), 2);
  return work;
}

// x as [pixel][channel] where pixels of y are those of x, else as images to walk over; groups one after the
// other, as if each had images of its own.
TensorMaps maps_of(const ImplicitGemmHalfSm90& kernel) {
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  const ConvExtents& a = kernel.conv;
  const std::uint64_t pixel = 2 * wide(a.c);
  TensorMapLayout x{
      .extents = {wide(kernel.depth()), wide(a.w), wide(a.h)},
      .strides = {pixel, pixel * wide(a.w)},
      .box = {static_cast<std::uint32_t>(kernel.channels), static_cast<std::uint32_t>(kernel.tile_rows())},
      .swizzle = kernel.channels == 64 ? Swizzle::bytes_128 : Swizzle::bytes_64,
      .type = a.x_type};
  if (kernel.pointwise()) {
    x.extents = {wide(a.c), wide(a.n) * wide(a.d) * wide(a.h) * wide(a.w)};
    x.strides = {pixel};
  } else {
    x.walk = ImageWalk{{-a.pad_left, -a.pad_top},
                       {kernel.corner_right(), kernel.corner_below()},
                       {static_cast<std::uint32_t>(a.stride_w), static_cast<std::uint32_t>(a.stride_h)}};
    const auto add_extent = [&](int extent, std::uint64_t step) {
      x.extents.push_back(wide(extent)), x.strides.push_back(step);
    };
    const auto walk_over = [&](int first_corner, int last_corner, int stride) {
      x.walk->first_corner.push_back(first_corner), x.walk->last_corner.push_back(last_corner);
      x.walk->strides.push_back(static_cast<std::uint32_t>(stride));
    };
    const std::uint64_t frame = pixel * wide(a.w) * wide(a.h);
    if (a.has_depth()) {
      // With a cache a corner is the tap's own frame, anywhere before the first or behind the last.
      const bool any = kernel.cache > 0;
      const int most = kernel.most_corner();
      add_extent(a.d, frame);
      walk_over(any ? -most : -a.pad_front, any ? most - 1 : kernel.corner_behind(), a.stride_d);
      add_extent(a.n, frame * wide(a.d));
    } else {
      add_extent(a.n, frame);
      if (a.groups > 1) add_extent(a.groups, 2 * wide(kernel.depth())), walk_over(0, 0, 1);
    }
  }
  TensorMaps maps{"convtune::implicit_gemm_half_sm90::Maps", {{Operand::x, {x}}}};
  if (kernel.cache > 0) {
    TensorMapLayout cache = x;
    cache.extents[3] = wide(kernel.cache);
    cache.strides[3] = cache.strides[2] * wide(kernel.cache);
    maps.type = "convtune::implicit_gemm_half_sm90::MapsWithCache";
    maps.groups.push_back({Operand::cache, {cache}});
  }
  if (kernel.lying > 0) {
    maps.type = "convtune::implicit_gemm_half_sm90::MapsWithWeights";
    maps.groups.push_back(
        lying_map(a, kernel.lie, kernel.depth(), kernel.channels, kernel.filters, kernel.cluster));
  }
  return maps;
}

// Filters of a tile that leave few idle: a part of them all, and what multiplies best.
std::set<int> filters_of(int k) {
  std::set<int> some;
  for (int blocks = 1; blocks <= 8; ++blocks) {
    const int part = ceil_div(k, blocks);
    some.insert(part <= 32 ? round_up(part, 8) : round_up(part, 16));
  }
  for (const int filters : {64, 96, 128, 192, 256})
    if (filters < k) some.insert(filters);
  while (!some.empty() && *some.rbegin() > 256) some.erase(*some.rbegin());
  return some;
}

class ImplicitGemmHalf final : public KernelAlgorithmOf<ImplicitGemmHalfSm90> {
 public:
  ImplicitGemmHalf() : KernelAlgorithmOf("implicit_gemm_half_sm90") {}

 private:
  static ImplicitGemmHalfSm90 plain(const Computed& a) {
    return {.conv = extents_of(a), .cache = static_cast<int>(a.cache), .snake = static_cast<int>(a.snake)};
  }
  ImplicitGemmHalfSm90 kernel_of(const Computed& a, const Config& config) const override {
    ImplicitGemmHalfSm90 kernel = plain(a);
    if (is_lying(config)) kernel.lying = 1, kernel.lie = lying_of(a);
    return from_config(config, kernel);
  }
  bool has_depth() const override { return true; }
  bool stores_between() const override { return true; }
  bool gathers_while_packing() const override { return true; }
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm90(device), takes_half_frames_and_caches(a, true),
                                         takes_wide_groups(a), takes_channels_in_eights(a), fits_extents(a)});
        !support)
      return support;
    if (a.has_depth() && a.groups > 1) return Support::no("in three dimensions it is for one group only");
    if (!plain(a).can_walk())
      return Support::no(
          "TMA walks over images by strides up to 8, from at most 128 pixels outside to at most 128 inside, "
          "and over filters of up to 256 pixels; of several groups or frames from 16 pixels, and of 32");
    return Support::yes();
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "its pixels, tiles or steps are too many to be counted in 30 bits";
  }
  Support takes_kernel(const ImplicitGemmHalfSm90& kernel, const DeviceInfo&) const override {
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(
        fmt::format("at most 256 pixels of consumers and row_blocks, and 128 sums of a thread (96 with 3 "
                    "consumers); filters "
                    "a multiple of 8 up to 32, then of 16; channels 32 or 64; stages 2 to {}; ping_pong with "
                    "2 consumers, "
                    "no split; a split of at most {} steps without a cluster, whose sums fit into the "
                    "stages; lying with neither epilogue, snake nor cache, whose "
                    "weights TMA can bring; and {} bytes "
                    "of shared memory",
                    kMostStages, kernel.steps(), sm90_smem_per_block()));
  }
  LaunchPlan launch(const ImplicitGemmHalfSm90& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = {maps_of(kernel),
                                       Pointer{Operand::x, "const void*"},
                                       Pointer{Operand::packed},
                                       Pointer{Operand::y, "void*"},
                                       Pointer{Operand::residual, "const void*"},
                                       Pointer{Operand::cache, "const void*"},
                                       kernel.conv.n};
    return going_on(plan_of(kernel, device, {blocks_of(kernel, device.units)}, std::move(arguments)),
                    kernel.split > 1 ? 0 : kernel.cluster);
  }
  TileWork counted(const ImplicitGemmHalfSm90& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const ImplicitGemmHalfSm90& a) const override {
    return 2.0 * static_cast<double>(a.tiles()) * a.cluster * a.tile_rows() * a.filters * a.all_products() *
           16;
  }
  std::optional<StageView> stages(const ImplicitGemmHalfSm90& kernel) const override {
    return stages_alone(kernel);
  }

  // The best by the model of time, each with as many stages as there is room for.
  std::vector<ImplicitGemmHalfSm90> configs(const Computed& a, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    std::vector<Ranked<ImplicitGemmHalfSm90>> ranked;
    const auto add = [&](ImplicitGemmHalfSm90 kernel) {
      for (kernel.stages = kMostStages; kernel.stages >= 2; --kernel.stages) {
        if (!kernel.valid(sm90_smem_per_block())) continue;
        const BlockNeeds block{kernel.threads(), 0, kernel.smem_bytes()};
        if (kernel.split > 1 && kernel.tiles() * kernel.split > clustered_blocks(target, block, kernel.split))
          return;
        ranked.push_back(timed(kernel, a, target, blocks_of(kernel, device.units)));
        ranked.back().cost += packing_us(a);
        kernel.lying = 1, kernel.lie = lying_of(a);
        if (kernel.valid(sm90_smem_per_block()))
          ranked.push_back(timed(kernel, a, target, blocks_of(kernel, device.units)));
        return;
      }
    };
    ImplicitGemmHalfSm90 kernel = plain(a);
    const int rest = kernel.depth() % 64;
    for (const int filters : filters_of(kernel.conv.group_filters()))
      for (const int channels : {64, 32}) {
        if (channels == 32 && (rest == 0 || rest > 32)) continue;
        kernel.filters = filters, kernel.channels = channels;
        for (const auto& [consumers, row_blocks, ping_pong] : {std::tuple{2, 1, false},
                                                               {2, 2, false},
                                                               {2, 1, true},
                                                               {2, 2, true},
                                                               {3, 1, false},
                                                               {1, 1, false},
                                                               {1, 2, false}}) {
          kernel.consumers = consumers, kernel.row_blocks = row_blocks, kernel.ping_pong = ping_pong;
          kernel.cluster = kernel.split = 1;
          add(kernel);
          kernel.cluster = 2;
          if (kernel.row_tiles() > 1) add(kernel);
          kernel.cluster = 1;
          for (const int split : {2, 4, 8}) {
            kernel.split = split;
            add(kernel);
          }
        }
      }
    return best_of(std::move(ranked));
  }
};

}  // namespace

const Algorithm& implicit_gemm_half_sm90() {
  return once([] { return ImplicitGemmHalf(); });
}

}  // namespace convtune::cuda
