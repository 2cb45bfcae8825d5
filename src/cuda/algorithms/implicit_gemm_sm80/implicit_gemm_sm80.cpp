// `implicit_gemm_sm80`: any problem on tensor cores of compute capability 8.0 and up
// (implicit_gemm_sm80.cuh). Its search space, and what runs. Where `specialized` is 0 the kernel
// serves every problem of its layout: compiled once, it answers at once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/implicit_gemm_sm80/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "problem/activation.h"

namespace convtune {

// As CUDA C++ spells it: for to_cuda().
static std::string field_to_cuda(Multiply multiply) {
  constexpr const char* kNames[] = {"tf32", "f16", "bf16", "fp32"};
  return fmt::format("convtune::Multiply::{}", kNames[static_cast<std::size_t>(multiply)]);
}

}  // namespace convtune

namespace convtune::cuda {
namespace {

// A block's tile and the warps that share it.
struct Shape {
  int block_m, block_n, warps_m, warps_n;
};
// The last: for problems whose kernel is not compiled for them.
constexpr Shape kShapes[] = {
    {128, 256, 2, 4}, {256, 128, 4, 2}, {192, 128, 4, 2}, {128, 128, 2, 4}, {128, 128, 2, 2}, {96, 256, 2, 4},
    {96, 128, 2, 4},  {96, 128, 2, 2},  {64, 256, 2, 4},  {64, 256, 1, 4},  {64, 128, 2, 4},  {64, 128, 1, 4},
    {64, 128, 2, 2},  {128, 64, 4, 2},  {128, 64, 2, 2},  {64, 64, 2, 2},   {48, 128, 1, 4},  {48, 256, 1, 8},
    {32, 256, 1, 8},  {32, 256, 1, 4},  {32, 128, 1, 4},  {64, 32, 4, 1},   {32, 64, 2, 2},   {16, 128, 1, 4},
    {16, 256, 1, 8},  {16, 64, 1, 2}};
constexpr Shape kGeneralShapes[] = {{128, 128, 2, 4}, {96, 128, 2, 4}, {64, 128, 2, 4}, {64, 64, 2, 2},
                                    {32, 128, 1, 4},  {32, 64, 2, 2},  {16, 128, 1, 4}};

Multiply multiply_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return Multiply::fp32;
    case Precision::fp16:
      return Multiply::f16;
    case Precision::bf16:
      return Multiply::bf16;
    default:
      return Multiply::tf32;
  }
}

ImplicitGemmSm80 plain_of(const Computed& problem) {
  return {.conv = extents_of(problem), .multiply = multiply_of(problem.precision)};
}

// Blocks that a multiprocessor holds at once, by registers and shared memory.
int resident_blocks(const ImplicitGemmSm80& kernel, const Target& target) {
  const std::int64_t by_smem = target.smem_per_multiprocessor / (kernel.smem_bytes() + target.smem_reserved);
  return static_cast<int>(std::clamp<std::int64_t>(by_smem, 1, kernel.blocks_per_unit()));
}

// Clock cycles of the busiest multiprocessor, roughly: of products, shared memory, copies and the L2 the
// slowest and a part of the others, for every block of terms; then what a block begins and ends with.
double estimated_cycles(const ImplicitGemmSm80& kernel, const Target& target) {
  constexpr double kMultiplyAddsACycle = 640, kSmemBytesACycle = 128, kL2BytesACycle = 22;
  constexpr double kOverlap = 0.2, kBarrier = 40, kStart = 1500, kStoredBytesACycle = 12;
  const ConvExtents& a = kernel.conv;
  const double m = kernel.block_m, n = kernel.block_n, k = kernel.block_k;
  const double speed = kernel.is_half() ? 2 : kernel.multiply == Multiply::fp32 ? 0.3 : 1;
  const double weight_bytes = 4.0 * kernel.weight_words(), input_bytes = n * k * 4;
  const double products = m * n * k / kMultiplyAddsACycle / speed;
  const double smem =
      (weight_bytes * (1 + kernel.warps_n) + input_bytes * (1 + kernel.warps_m)) / kSmemBytesACycle;
  const bool wide = a.nhwc ? kernel.chunked && a.c % 4 == 0 && a.group_channels() % 4 == 0
                           : kernel.chunked && a.r * a.s * a.stride_h * a.stride_w == 1 &&
                                 static_cast<long long>(a.p) * a.q % 4 == 0;
  const double copies = n * k / 32 * (wide ? 2 : kernel.chunked ? 4.5 : 8) + weight_bytes / 64;
  const double reuse = kernel.chunked && a.r * a.s > 1 ? 0.5 : 1;  // the share in L1
  const double l2 = (weight_bytes + reuse * input_bytes) / kL2BytesACycle;
  const int resident = resident_blocks(kernel, target);
  const double blocks = std::ceil(static_cast<double>(kernel.blocks(a)) / target.multiprocessors);  // each
  const double together = std::min<double>(resident, blocks);
  const double slowest = std::max({products, smem, copies, l2});
  const double step = slowest + kOverlap * (products + smem + copies + l2 - slowest) + kBarrier / together;
  // Copies through L1 need lines of it while they are on their way, and shared memory leaves it few.
  const double used = together * kernel.smem_bytes() / static_cast<double>(target.smem_per_block);
  const double small_l1 = 1 + 0.5 * std::max(0.0, used - 0.6);
  const double few_warps = 1 + 0.6 * std::max(0.0, 1 - together * kernel.threads() / 256);
  const double ends =
      (kStart + m * n * 4 / kStoredBytesACycle * 0.5) / together + m * n * 4 / kStoredBytesACycle * 0.5;
  return blocks * (kernel.k_blocks(a) * step * few_warps * small_l1 + ends);
}

// A tile of filters and positions; the input gathered by copies of 4 bytes, where rows are not as they lie.
TileWork work_of(const ImplicitGemmSm80& a) {
  const ConvExtents& e = a.conv;
  const double m = a.block_m, n = a.block_n, k_blocks = a.k_blocks(e), k = k_blocks * a.block_k;
  const double steps = a.threads() / 32.0 * k / a.k_step();  // for all warps
  const double tiles_m = a.tiles_m(), tiles_n = a.tiles_n(), times = a.multiply == Multiply::fp32 ? 3 : 1;
  const bool wide = e.nhwc ? a.chunked && e.c % 4 == 0 && e.group_channels() % 4 == 0
                           : a.chunked && e.r * e.s * e.stride_h * e.stride_w == 1 &&
                                 static_cast<long long>(e.p) * e.q % 4 == 0;
  const double copies = n * k / 32, weight_bytes = 4 * k_blocks * a.weight_words();
  // Neighbouring taps find in L1 most of what they share.
  const double shared = e.r * e.s == 1 ? 1 : std::max(1.0 * e.stride_h * e.stride_w / (e.r * e.s), 0.3);
  TileWork work;
  work.tiles = static_cast<double>(a.blocks(e));
  work.load_beside = a.chunked;
  work.in_flight_bytes = 4.0 * (a.stages - 1) * a.stage_words();
  work.copies = copies * (wide ? 0.25 : 1);
  work.load.instructions = n / 32 * 60 +
                           copies * (wide        ? 0.5
                                     : a.chunked ? 1.5
                                                 : 3 + 8 / std::max(1.0, n / 32)) +
                           2 * weight_bytes / kBulkBytes;
  work.load.wavefronts = copies + weight_bytes / 128;
  work.load.l2_bytes = weight_bytes + 4 * k * n * shared;
  work.multiply.products = m * n / 128 * k / a.k_step() * times;
  work.multiply.instructions = steps * (times * (tiles_m * tiles_n + tiles_m) + 4.5 * tiles_n + 2);
  work.multiply.wavefronts = steps * (4 * tiles_m * std::min(times, 2.0) + 2 * tiles_n);
  work.multiply.waits = k_blocks;
  work.store.instructions = m * n / 32 * 5;
  work.store.wavefronts = m * n / 32 * 2;
  const double image = static_cast<double>(a.filter_outputs(e)), row = a.warp_n();
  store_in_pieces(work, outputs_of(e) / work.tiles,
                  a.between()                              ? (a.abreast() > 1 ? row * a.abreast() : 1)
                  : e.nhwc                                 ? std::min<double>(m, e.k)
                  : image >= n && std::fmod(image, 8) != 0 ? row - 1
                                                           : std::min(row, image));
  return work;
}

// Not specialized, the kernel is compiled for a layout and an activation alone, and told the problem at every
// launch: then no activation and ReLU are clips, whose bounds it is told.
ConvExtents told(ConvExtents conv) {
  constexpr float kNone = std::numeric_limits<float>::infinity();
  if (conv.activation == ConvActivation::none) conv.alpha = -kNone, conv.beta = kNone;
  if (conv.activation == ConvActivation::relu) conv.alpha = 0, conv.beta = kNone;
  if (conv.activation == ConvActivation::none || conv.activation == ConvActivation::relu)
    conv.activation = ConvActivation::clip;
  return conv;
}
ImplicitGemmSm80 compiled(ImplicitGemmSm80 kernel) {
  if (!kernel.specialized)
    kernel.conv = ConvExtents{.nhwc = kernel.conv.nhwc, .activation = told(kernel.conv).activation};
  return kernel;
}

class ImplicitGemm final : public KernelAlgorithmOf<ImplicitGemmSm80> {
 public:
  ImplicitGemm() : KernelAlgorithmOf("implicit_gemm_sm80") {}

  bool compiles(const Config& config) const override { return config.at("specialized") != 0; }

 private:
  bool has_depth() const override { return true; }
  bool stores_between() const override { return true; }
  Cut cut() const override { return {.joined = true, .grouped = true, .bare = true, .rows = false}; }
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    const Abilities& abilities =
        once([] { return Abilities{.activations = all_activations(), .depth = true}; });
    if (Support support = first_refusal({needs_sm80(device), within(abilities, a), fits_extents(a)});
        !support)
      return support;
    if (a.has_depth() && a.layout != Layout::nchw)
      return Support::no("in three dimensions it is for NCHW alone");
    if (a.lies.between() && a.layout != Layout::nchw)
      return Support::no("residues of a stride it stores between each other in NCHW alone");
    if (const ImplicitGemmSm80 kernel = plain_of(a); !kernel.fits(kernel.conv))
      return Support::no(
          "its sums have too many terms, or its output is too large, to be counted in 31 bits");
    return Support::yes();
  }

  ImplicitGemmSm80 kernel_of(const Computed& a, const Config& config) const override {
    return from_config(config, plain_of(a));
  }
  bool has_configs(const Computed&, const DeviceInfo&) const override { return true; }
  std::string why_none(const ConvProblem&, const DeviceInfo&) const override { return {}; }
  std::vector<ImplicitGemmSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    std::vector<ImplicitGemmSm80> all = ranked(a, target, true);
    for (const ImplicitGemmSm80& kernel : ranked(a, target, false)) all.push_back(kernel);
    return all;
  }

  Support takes_kernel(const ImplicitGemmSm80& kernel, const DeviceInfo& device) const override {
    const std::int64_t most_smem_bytes = target_of(device).smem_per_block;
    if (!kernel.valid(most_smem_bytes))
      return Support::no(
          fmt::format("block_n 32, 64, 128 or 256; block_k 16 or 32; 2 to 8 warps, powers of 2, each with a "
                      "multiple of 16 x 32 of the tile and at most {} registers of sums (this: {}); 2 to {} "
                      "stages in {} bytes of shared memory (this: {})",
                      ImplicitGemmSm80::kMostSums, kernel.sums(), ImplicitGemmSm80::kMostStages,
                      most_smem_bytes, kernel.smem_bytes()));
    if (!kernel.fits(kernel.conv))
      return Support::no("with this tile its blocks are too many to be counted in 31 bits");
    return Support::yes();
  }
  LaunchPlan launch(const ImplicitGemmSm80& kernel, const DeviceInfo& device) const override {
    std::vector<Argument> arguments = kTensorArguments;
    arguments.emplace_back(told(kernel.conv));
    LaunchPlan plan =
        plan_of(compiled(kernel), kernel.packed(kernel.conv), device,
                {static_cast<unsigned>(kernel.blocks(kernel.conv))}, std::move(arguments), {kernel.conv});
    plan.serves_every_problem = !kernel.specialized;
    hold_resident(plan, kernel.blocks_per_unit());
    const BlockNeeds block = {kernel.threads(), plan.most_registers, kernel.smem_bytes()};
    plan.resident_blocks = std::max(occupancy(target_of(device), block).blocks, 1);
    return plan;
  }
  TileWork counted(const ImplicitGemmSm80& kernel) const override { return work_of(kernel); }
  double flops(const ConvProblem&, const ImplicitGemmSm80& a) const override {
    const double speed = a.is_half() ? 2 : a.multiply == Multiply::fp32 ? 1.0 / 3 : 1;
    return 2.0 * static_cast<double>(a.blocks(a.conv)) * a.block_m * a.block_n * a.k_blocks(a.conv) *
           a.block_k / speed;
  }
  // Twice the warps share the same tile along its warps' longer side.
  std::optional<StageView> stages(const ImplicitGemmSm80& typed) const override {
    return view_of_stages(
        {typed.warps_m * typed.warps_n, typed.stages}, 2, [typed](const StageConfig& wanted) {
          ImplicitGemmSm80 other = typed;
          other.stages = static_cast<int>(wanted.stages);
          if (wanted.warps == 2 * typed.warps_m * typed.warps_n) {
            const bool along_m = typed.block_m / typed.warps_m >= typed.block_n / typed.warps_n &&
                                 typed.block_m % (32 * typed.warps_m) == 0;
            (along_m ? other.warps_m : other.warps_n) *= 2;
          }
          return to_config(other);
        });
  }

  // The configs that make sense, best estimate first: those that need no more than twice the best's.
  static std::vector<ImplicitGemmSm80> ranked(const Computed& a, const Target& target, bool specialized) {
    std::vector<Ranked<ImplicitGemmSm80>> all;
    const ImplicitGemmSm80 plain = plain_of(a);
    const auto add = [&](const Shape& shape, int block_k, int stages, bool chunked) {
      if (plain.conv.has_depth() && (chunked || !specialized)) return;
      if (shape.block_m > 16 && shape.block_m / 2 >= a.k / a.groups) return;  // half of it or more is idle
      ImplicitGemmSm80 kernel = plain;
      kernel.block_m = shape.block_m, kernel.block_n = shape.block_n, kernel.block_k = block_k;
      kernel.warps_m = shape.warps_m, kernel.warps_n = shape.warps_n, kernel.stages = stages;
      kernel.chunked = chunked, kernel.specialized = specialized;
      if (!kernel.valid(target.smem_per_block) || !kernel.fits(kernel.conv)) return;
      all.push_back({estimated_cycles(kernel, target), kernel});
    };
    for (const bool chunked : {true, false}) {
      if (!specialized)
        for (const Shape& shape : kGeneralShapes) add(shape, 16, 3, chunked);
      else
        for (const Shape& shape : kShapes)
          for (const int block_k : {16, 32})
            for (const int stages : {3, 4}) add(shape, block_k, stages, chunked);
    }
    return best_of(std::move(all), kMostCandidates, kHopeless);
  }
};

}  // namespace

const Algorithm& implicit_gemm_sm80() {
  return once([] { return ImplicitGemm(); });
}

}  // namespace convtune::cuda
