// `direct_depthwise_half_sm90`: depthwise layers in half precision, channels last, on tensor cores of compute
// capability 9.0 (direct_depthwise_half_sm90.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_depthwise_half_sm90/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

using Kernel = DirectDepthwiseHalfSm90;

// Each block keeps to its channels, and goes from tile to tile.
long long grid_of(const Kernel& kernel, int multiprocessors) {
  const long long room = std::max(1LL * multiprocessors * kernel.blocks / kernel.chunks(), 1LL);
  return std::min(room * kernel.chunks(), kernel.tiles());
}

constexpr double kBlocks = 132;  // about
constexpr double kRequestBytes = 20;

TileWork work_of(const Kernel& a) {
  const ConvExtents& conv = a.conv;
  // Input rows of a tile: of a run of them only the first has all.
  const double runs =
      a.rolls() ? std::min(1.0 / a.levels() + kBlocks / static_cast<double>(a.tiles()), 1.0) : 1;
  const double all_rows = runs * a.strip_rows() + (1 - runs) * a.turn_rows();
  const double rows = a.consumers() * all_rows;         // for all warps
  const double outputs = 1.0 * a.consumers() * a.rows;  // for all warps
  const double pixels = all_rows * a.stage_bytes();
  TileWork work;
  work.tiles = static_cast<double>(a.tiles());
  work.persistent = work.load_beside = work.store_beside = true;
  work.load_warps = 2;
  work.in_flight_bytes = (a.stages - 1.0) * a.stage_bytes();
  work.load.instructions = 40.0 * all_rows;
  work.load.wavefronts = pixels / 128;
  // A pixel is a request to TMA, which takes longer than its bytes do.
  const double requests = 1.0 + kRequestBytes / a.pixel_bytes();
  work.load.l2_bytes = pixels * requests;
  work.multiply.products = 1.0 * a.consumers() * a.products();
  work.multiply.instructions = work.multiply.products + rows * 45 + outputs * 60;
  work.multiply.wavefronts = rows * (a.paired() ? 24 : 32);
  Phase& store = work.multiply;  // by the warps that multiply
  store.wavefronts += outputs * 16 * (conv.residual ? 2 : 1);
  store.instructions += outputs * (conv.residual ? 20 : 0);
  add_epilogue(store, conv, outputs * 512);
  const double slots = 1.0 * a.rows * a.slot_bytes();
  work.store.wavefronts = slots / 128 * (conv.residual ? 2 : 1);
  if (conv.residual) work.load.l2_bytes += slots;
  // In words of 4 bytes. An odd number of eights leaves sectors in halves.
  store_in_pieces(work, outputs_of(conv) / work.tiles / 2,
                  a.chunks() == 1 ? 0.5 * std::min(a.tile_columns(), conv.q) * conv.c : 4.0 * a.octets);
  return work;
}

// x, and y or the residual, as [image][row][column][channel]: a row of one band at a time.
TensorMaps maps_of(const Kernel& kernel) {
  const auto wide = [](auto value) { return static_cast<std::uint64_t>(value); };
  const auto narrow = [](int value) { return static_cast<std::uint32_t>(value); };
  const ConvExtents& a = kernel.conv;
  const Swizzle swizzle = !kernel.swizzled()   ? Swizzle::none
                          : kernel.octets == 8 ? Swizzle::bytes_128
                          : kernel.octets == 4 ? Swizzle::bytes_64
                                               : Swizzle::bytes_32;
  const auto map = [&](int height, int width, int columns, ElementType type) {
    const std::uint64_t pixel = 2 * wide(a.c), row = pixel * wide(width), image = row * wide(height);
    return TensorMapLayout{.extents = {wide(a.c), wide(width), wide(height), wide(a.n), 1},
                           .strides = {pixel, row, image, image * wide(a.n)},
                           .box = {narrow(kernel.channels()), narrow(columns), 1, narrow(kernel.images), 1},
                           .swizzle = swizzle,
                           .type = type};
  };
  const TensorMapLayout x = map(a.h, a.w, kernel.pitch(), a.x_type);
  const TensorMapLayout y = map(a.p, a.q, kernel.tile_columns(), a.y_type);
  return {"convtune::direct_depthwise_half_sm90::Maps",
          {{Operand::x, {x}},
           {Operand::y, {y}},
           a.residual ? TensorMapGroup{Operand::residual, {y}} : TensorMapGroup{Operand::x, {x}}}};
}

constexpr int kLeastStages = 4;

std::vector<Kernel> configs_of(const ConvExtents& conv, const Target& target) {
  std::vector<Kernel> configs;
  const auto add = [&](Kernel kernel) {
    kernel.groups = ceil_div(kernel.units(), kernel.group_units());
    if (!kernel.possible()) return;
    for (kernel.blocks = most_blocks(kernel, target); kernel.blocks >= 1; --kernel.blocks) {
      Kernel more = kernel;
      while (++more.stages <= Kernel::kMostStages && most_blocks(more, target) >= kernel.blocks)
        kernel.stages = more.stages;
      if (kernel.stages >= kLeastStages && kernel.valid(target.smem_per_block)) {
        configs.push_back(kernel);
        break;
      }
    }
  };
  const auto idle = [](int tile, int extent) { return ceil_div(extent, tile) * tile > extent + extent / 7; };
  const Kernel plain{.conv = conv};
  const int all_across = ceil_div(conv.q, plain.width()), all_octets = ceil_div(conv.c, 8);
  for (const int across : parts_of(all_across))
    for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16}) {
      const int all_bands = ceil_div(conv.p, rows);
      for (const int bands : {1, 2, 3, 4, 8, 16}) {
        if (bands > all_bands || idle(rows * bands, conv.p)) continue;
        const bool whole = across == all_across && bands == all_bands;
        for (const int images : {1, 2, 4, 8, 16, 32}) {
          if (images > 1 && (!whole || images > conv.n)) continue;
          for (const int octets : {1, 2, 3, 4, 5, 7, 8, 9})
            // Three at a time took 1.7 times as long as four.
            if (octets <= all_octets && !idle(octets, all_octets) &&
                (octets % 2 == 0 || octets == 1 || octets == all_octets))
              add({.conv = conv,
                   .rows = rows,
                   .bands = bands,
                   .across = across,
                   .images = images,
                   .octets = octets});
        }
      }
    }
  if (configs.empty()) {
    Kernel least = Kernel::least(conv);
    least.blocks = most_blocks(least, target);
    configs.push_back(least);
  }
  return configs;
}

class DirectDepthwiseHalfSm90Algorithm final : public KernelAlgorithmOf<Kernel> {
 public:
  DirectDepthwiseHalfSm90Algorithm() : KernelAlgorithmOf("direct_depthwise_half_sm90") {}

 private:
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal({needs_sm90(device), takes_half(a), takes_layout(a, Layout::nhwc),
                                         takes_depthwise(a), takes_channels_in_eights(a)});
        !support)
      return support;
    if (a.r > Kernel::kMostFilter || a.s > Kernel::kMostFilter)
      return Support::no(fmt::format("it is for filters of at most {0}x{0}, and this is {1}x{2}",
                                     Kernel::kMostFilter, a.r, a.s));
    if (a.r * a.s < Kernel::kLeastTaps)
      return Support::no(
          fmt::format("filters of less than {} taps are faster by multiply-adds, and this is {}x{}",
                      Kernel::kLeastTaps, a.r, a.s));
    if (a.stride_h > 2 || a.stride_w > 2 || a.dilation_h != 1 || a.dilation_w != 1)
      return Support::no("it is for strides 1 and 2, without dilation");
    return fits_extents(a);
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return Kernel::least(extents_of(a)).valid(target_of(device).smem_per_block);
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo&) const override {
    return fmt::format("an image of {}x{}x{} is too large, or {} tiles are", a.h, a.w, a.c,
                       Kernel::least(extents_of(a)).tiles());
  }
  std::vector<Kernel> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<Kernel>> ranked;
    const Target target = target_of(device);
    for (const Kernel& kernel : configs_of(extents_of(a), target))
      ranked.push_back(timed(kernel, a, target, static_cast<double>(grid_of(kernel, device.units))));
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const Kernel& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          fmt::format("eights of channels are 1, 2, 4, 8 or an odd number, {} strips at most for each group "
                      "of warps (here {} for {}), {} columns of the image in a tile (here {}) and {} warps "
                      "(here {})",
                      Kernel::kStrips, kernel.strips(), kernel.groups, 256, kernel.pitch(),
                      Kernel::kMostConsumers, kernel.consumers()));
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(fmt::format("{} products in straight code (this: {}), {}", Kernel::kMostProducts,
                                   kernel.products(), needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const Kernel& kernel, const DeviceInfo& device) const override {
    LaunchPlan plan = plan_of(kernel, device, {static_cast<unsigned>(grid_of(kernel, device.units))},
                              {maps_of(kernel), Pointer{Operand::x, "const void*"}, Pointer{Operand::packed},
                               Pointer{Operand::y, "void*"}, Pointer{Operand::residual, "const void*"}});
    plan.most_registers = kernel.launch_registers();
    plan.stores_before_repair = true;
    return plan;
  }
  TileWork counted(const Kernel& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& direct_depthwise_half_sm90() {
  return once([] { return DirectDepthwiseHalfSm90Algorithm(); });
}

}  // namespace convtune::cuda
