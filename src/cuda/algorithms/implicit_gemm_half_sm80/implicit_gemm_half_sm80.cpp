// `implicit_gemm_half_sm80`: half precision, channels last, on tensor cores of compute capability 8.0 and up
// (implicit_gemm_half_sm80.cuh). Which problems it takes, its search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/capability_facts.h"
#include "model/target_of.h"

namespace convtune::cuda {
namespace {

// As many blocks as stay on the device's SMs.
unsigned blocks_of(const ImplicitGemmHalfSm80& kernel, int multiprocessors) {
  return static_cast<unsigned>(
      std::min(kernel.tiles() * kernel.split, 1LL * multiprocessors * kernel.blocks));
}

// If wgmma has a kernel of its own, which is nearly always faster, few are worth a try.
constexpr std::size_t kMostBesideWgmma = 12;

// A block's tile and the warps that share it: 64 x 64 of a warp read the fewest bytes of shared memory for a
// product, smaller ones fill more multiprocessors.
struct Shape {
  int rows, filters, warps_m, warps_n;
};
constexpr Shape kShapes[] = {{256, 128, 4, 2}, {128, 256, 2, 4}, {128, 128, 2, 2}, {128, 128, 4, 2},
                             {128, 128, 2, 4}, {128, 192, 4, 2}, {256, 64, 4, 1},  {256, 64, 4, 2},
                             {128, 96, 4, 1},  {128, 64, 2, 1},  {128, 64, 2, 2},  {128, 64, 4, 1},
                             {64, 256, 1, 4},  {64, 192, 2, 2},  {64, 128, 1, 2},  {64, 128, 2, 2},
                             {64, 96, 2, 1},   {64, 64, 2, 2},   {64, 64, 2, 1},   {256, 32, 4, 1},
                             {128, 32, 4, 1},  {64, 32, 4, 1},   {64, 32, 2, 1},   {32, 128, 2, 2},
                             {32, 64, 1, 2},   {32, 64, 2, 2},   {32, 32, 2, 1}};

// The share of x: how much of what a tile copies is read from L2: neighbouring taps find in L1 most of what
// they share.
double unshared(const ImplicitGemmHalfSm80& a) {
  if (a.taps() == 1 || a.window) return 1;
  return std::clamp(1.5 * a.conv.stride_h * a.conv.stride_w / a.taps(), 0.2, 1.0);
}

// A block's tile, or its share of one.
TileWork work_of(const ImplicitGemmHalfSm80& a) {
  const double steps = 1.0 * a.steps() / a.split, warps = a.threads() / 32.0, residual = a.conv.residual;
  const double products = steps * a.products(), outputs = 1.0 * a.rows * a.filters;  // products of 16 terms
  const double inputs = a.window ? steps / a.taps() : steps;                         // how often x is copied
  const double copies = inputs * a.row_copies() * warps, more = steps * a.weight_copies() * warps;
  const double input_bytes = inputs * a.input_bytes(), weight_bytes = steps * a.weight_bytes();
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.split;
  work.persistent = work.load_beside = true;
  work.in_flight_bytes = (a.stages - 1.0) * a.stage_bytes() + (a.window ? a.input_bytes() : 0);
  work.load.instructions = warps * (a.row_copies() * 25 + steps * 15) + copies * 6 + more * 2;
  work.load.wavefronts = (input_bytes + weight_bytes) / 128;
  work.load.l2_bytes = input_bytes * unshared(a) + weight_bytes;
  work.multiply.products = products * outputs / 128;
  work.multiply.instructions =
      products * warps * (a.tiles_m() * a.tiles_n() + a.tiles_m() + a.tiles_n() / 2.0 + 2);
  work.multiply.wavefronts = products * warps * (4.0 * a.tiles_m() + 2 * a.tiles_n());
  work.multiply.waits = 1 + 0.1 * steps;
  work.store.instructions = outputs / 32 * (4 + 3 * residual);
  work.store.l2_bytes = 2 * outputs * residual;
  add_epilogue(work.store, a.conv, outputs);
  if (a.split > 1) {  // every sum to memory and back, and a second launch
    work.store.instructions += outputs / 32 * 4;
    work.store.l2_bytes += 8 * outputs;
    work.store.waits = 30;
  }
  store_in_pieces(work, outputs_of(a.conv) / work.tiles, std::min(a.filters, a.conv.group_filters()), 2);
  return work;
}

class ImplicitGemmHalf final : public KernelAlgorithmOf<ImplicitGemmHalfSm80> {
 public:
  ImplicitGemmHalf() : KernelAlgorithmOf("implicit_gemm_half_sm80") {}

 private:
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    return first_refusal({needs_sm80(device), takes_half(a), takes_wide_groups(a),
                          takes_channels_in_eights(a), fits_extents(a)});
  }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override {
    return "its pixels, tiles or terms are too many to be counted in 30 bits";
  }
  Support takes_kernel(const ImplicitGemmHalfSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          "2 to 8 warps, powers of 2, each with a multiple of 16 pixels and of 32 filters; channels 32 or "
          "64, "
          "whose pieces of 8 the threads share evenly; 3 stages or more where there are several steps; a "
          "split "
          "of a power of 2; a window for strides of 1, channels that stages divide, at least as many taps as "
          "stages, less than 1024 columns times filter rows, and no split");
    if (!kernel.fits())
      return Support::no("its pixels, tiles or terms are too many to be counted in 30 bits");
    const Target target = target_of(device);
    if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target)) return Support::yes();
    return Support::no(
        fmt::format("{}, and a split of at most {} steps", needs_in_words(kernel, target), kernel.steps()));
  }
  LaunchPlan launch(const ImplicitGemmHalfSm80& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = kEpilogueArguments;
    arguments.emplace_back(Pointer{Operand::partial_sums, "float4*"});
    const auto tiles = static_cast<unsigned>(kernel.tiles());
    LaunchPlan plan = plan_of(kernel, device, {blocks_of(kernel, device.units)}, arguments);
    if (kernel.split > 1) {
      plan.workspace.push_back(
          {Operand::partial_sums, static_cast<std::size_t>(kernel.shared_words()) * sizeof(float)});
      arguments.erase(arguments.begin());  // x
      arguments.back() = Pointer{Operand::partial_sums, "const float4*"};
      plan.run.emplace_back(KernelLaunch{
          LaunchPlan::kAddUp, {tiles}, {static_cast<unsigned>(kernel.threads())}, 0, std::move(arguments)});
    }
    return plan;
  }
  TileWork counted(const ImplicitGemmHalfSm80& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const ImplicitGemmHalfSm80& a) const override {
    return 2.0 * static_cast<double>(a.tiles()) * a.rows * a.filters * a.steps() * a.channels;
  }

  // The best by the model of time, each with as many blocks as registers allow, and one less.
  std::vector<ImplicitGemmHalfSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    std::vector<Ranked<ImplicitGemmHalfSm80>> ranked;
    const auto add = [&](ImplicitGemmHalfSm80 kernel) {
      if (kernel.valid(target.smem_per_block) && stays_resident(kernel, target))
        ranked.push_back(timed(kernel, a, target, blocks_of(kernel, device.units)));
    };
    const auto add_all = [&](ImplicitGemmHalfSm80 kernel) {
      if (!kernel.possible()) return;
      for (kernel.blocks = 8; kernel.blocks > 1; --kernel.blocks)
        if (kernel.registers() <= kernel.register_limit()) break;
      const int most = kernel.blocks;
      for (kernel.blocks = most; kernel.blocks >= std::max(most - 1, 1); --kernel.blocks)
        for (kernel.stages = ImplicitGemmHalfSm80::kLeastStages; kernel.stages <= 4; ++kernel.stages)
          for (const int split : {1, 2, 4, 8, 16}) {
            kernel.split = split;
            const bool fills =
                static_cast<double>(kernel.tiles()) * split > 2.0 * device.units * kernel.blocks;
            if (split == 1 || (!fills && kernel.steps() >= 4 * split)) add(kernel);
          }
    };
    ImplicitGemmHalfSm80 kernel{.conv = extents_of(a)};
    for (const Shape& shape : kShapes) {
      kernel.rows = shape.rows, kernel.filters = shape.filters;
      kernel.warps_m = shape.warps_m, kernel.warps_n = shape.warps_n;
      const int wanted = kernel.conv.group_filters();
      if (shape.filters > 32 && ceil_div(wanted, shape.filters) * shape.filters >= 2 * wanted)
        continue;  // half of it or more is idle
      for (const int channels : {32, 64}) {
        kernel.channels = channels;
        if (channels == 64 && kernel.all_pieces() <= 4) continue;
        kernel.stages = ImplicitGemmHalfSm80::kLeastStages, kernel.blocks = kernel.split = 1;
        for (const bool window : {false, true}) {
          kernel.window = window;
          add_all(kernel);
        }
      }
    }
    return best_of(std::move(ranked),
                   capability_facts(device.capability).wgmma ? kMostBesideWgmma : kMostCandidates, kHopeless);
  }
};

}  // namespace

const Algorithm& implicit_gemm_half_sm80() {
  return once([] { return ImplicitGemmHalf(); });
}

}  // namespace convtune::cuda
