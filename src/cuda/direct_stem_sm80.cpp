// `direct_stem_sm80`: few input channels on compute capability 8.0 and up (kernels/direct_stem_sm80.cuh).
// Which problems it takes, and what runs. The fields of a config: kernels/direct_stem_sm80.h.
#include "cuda/direct_stem_sm80.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "capability.h"
#include "config.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/direct_stem_sm80_configs.h"
#include "cuda/extents.h"
#include "cuda/kernel_algorithm.h"
#include "cuda/tile_work.h"
#include "target.h"
#include "time_model.h"

namespace convtune::cuda {
namespace {

constexpr std::size_t kMostCandidates = 64;
constexpr double kHopeless = 2;  // times the best estimate

// Clock cycles of a block's products, if the tensor cores have nothing else to do.
double product_cycles(const DirectStemSm80& kernel, const DeviceInfo& device) {
  const double outputs = 1.0 * kernel.filters() * kernel.band() * kernel.columns();
  return tensor_cycles(target_of(device), false) * kernel.k_steps() * outputs / 128;
}

struct Compiled {
  CompileJob job;
  CompiledModule module;
  DirectStemSm80 kernel;
  std::int64_t spill_bytes() const { return module.kernels[0].spill_bytes; }
};
// Some configs fill the registers so well that ptxas spills one or two of them by mishap, a few in a hundred:
// then another order of loads is tried, and the one that spills least is taken.
Compiled compiled(DirectStemSm80 kernel, const std::string& isa) {
  std::optional<Compiled> best;
  for (const int held : {1, 0, 2, 3}) {
    kernel.held = held;
    CompileJob job = direct_stem_sm80_job(kernel, isa);
    CompiledModule module = compile(job);
    Compiled made{std::move(job), std::move(module), kernel};
    if (!best || made.spill_bytes() < best->spill_bytes()) best = std::move(made);
    if (best->spill_bytes() == 0) break;
  }
  return *std::move(best);
}

class DirectStemExecutable final : public PackingExecutable<DirectStemSm80> {
 public:
  DirectStemExecutable(const DirectStemSm80& kernel, int delay, const DeviceInfo& device)
      : DirectStemExecutable(delay, device, compiled(kernel, device.isa)) {}

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    launch({static_cast<unsigned>(config_.all_blocks())}, stream, static_cast<const float*>(x),
           static_cast<const float*>(packed), static_cast<float*>(y), multiprocessors_, delay_);
  }

 private:
  DirectStemExecutable(int delay, const DeviceInfo& device, const Compiled& made)
      : PackingExecutable(made.kernel, device, made.job, made.module),
        multiprocessors_(device.units),
        delay_(delay) {}

  const int multiprocessors_, delay_;
};

class DirectStem final : public KernelAlgorithm {
 public:
  DirectStem() : KernelAlgorithm("direct_stem_sm80") {}

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = takes(a, device); !support) return support;
    const DirectStemPlanned planned(a);
    if (!direct_stem_sm80_configs(planned, target_of(device)).empty()) return Support::yes();
    DirectStemConfig least{.column_warps = 4, .steps = 2, .stages = 3};
    return Support::no(
        fmt::format("{} bytes of shared memory and {} instructions are about the least that "
                    "it needs here, and it has {} and {}",
                    planned.with(least).smem_bytes(), planned.with(least).instructions(),
                    smem_per_block_anywhere(), DirectStemSm80::kMostInstructions));
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!takes(a, device)) return {};
    std::vector<Ranked<DirectStemConfig>> ranked;
    const DirectStemPlanned planned(a);
    const Target target = target_of(device);
    for (const DirectStemConfig& config : direct_stem_sm80_configs(planned, target)) {
      const DirectStemSm80 kernel = planned.with(config);
      // The launch bounds keep `blocks` resident.
      const TileWork work = tile_work(kernel, planned.wavefronts_at(kernel.row_pitch));
      const BlockShape block = {kernel.threads(), 0, work.tiles, kernel.blocks};
      ranked.push_back({estimate_time(target, work, block).us, config});
    }
    return to_configs(best_of(std::move(ranked), kMostCandidates, kHopeless));
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectStemSm80 kernel = DirectStemPlanned(a).with(from_config<DirectStemConfig>(config));
    const double flops = 16.0 * kernel.k_steps() * kernel.filters() * kernel.band() * kernel.columns() *
                         static_cast<double>(kernel.all_blocks());
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  // Twice the warps share the same tile: each has half of the filters, rows or columns.
  std::optional<StageView> stage_view(const Conv2dProblem& a, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<DirectStemConfig>(config);
    const DirectStemSm80 kernel = DirectStemPlanned(a).with(typed);
    StageView view;
    view.parameters.warps_name = "warps", view.parameters.stages_name = "stages";
    view.parameters.stages = {1, 2, 3, 4, 5, 6, 7, 8};
    view.config = {kernel.warps(), kernel.used_stages()};  // more would be kept empty
    view.with = [typed, now = kernel.warps()](const StageConfig& wanted) {
      DirectStemConfig other = typed;
      other.stages = wanted.stages;
      if (wanted.warps != 2 * now) return to_config(other);
      if (typed.warp_filters % 32 == 0)
        other.warp_filters /= 2, other.filter_warps *= 2;
      else if (typed.warp_rows % 2 == 0)
        other.warp_rows /= 2, other.row_warps *= 2;
      else if (typed.warp_columns % 2 == 0)
        other.warp_columns /= 2, other.column_warps *= 2;
      return to_config(other);
    };
    return view;
  }

 private:
  // What can be said without its configs.
  Support takes(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = needs_sm80(device); !support) return support;
    if (Support support = takes_tf32_nchw(a); !support) return support;
    if (a.groups != 1) return Support::no(fmt::format("it is for one group only, not {}", a.groups));
    if (a.dilation_h != 1 || a.dilation_w != 1) return Support::no("it is for dense filters only");
    if (Support support = fits_extents(a); !support) return support;
    constexpr std::int64_t kMost = DirectStemSm80::kMostTaps;
    if (a.c > kMost || a.r > kMost || a.s > kMost || a.c * a.r * a.s > kMost)
      return Support::no(fmt::format("it is for few input channels: {}x{}x{} products a sum are more than {}",
                                     a.c, a.r, a.s, kMost));
    if (a.c * a.h * a.w >= std::int64_t{1} << 31)  // offsets in an image are ints
      return Support::no(fmt::format("an image of {} numbers is too large", a.c * a.h * a.w));
    return Support::yes();
  }

  Support takes_config(const Conv2dProblem& a, const DeviceInfo& device,
                       const Config& config) const override {
    const auto typed = from_config<DirectStemConfig>(config);
    if (Support support = within(config, 0, 256); !support) return support;
    const DirectStemSm80 kernel = DirectStemPlanned(a).with(typed);
    if (!kernel.possible())
      return Support::no(fmt::format(
          "{} is no config: warp_filters is a multiple of 16 up to 128, blocks are 1 to 8, staged "
          "is 0 or 1, all others 1 or more with at most {} warps",
          to_string(config), DirectStemSm80::kMostWarps));
    const Target target = target_of(device);
    if (direct_stem_sm80_fits(kernel, target)) return Support::yes();
    return Support::no(fmt::format(
        "{} is not one of its configs for this problem: 2 stages or all {} steps in one, {} registers (this: "
        "{}), {} instructions (this: {}), {} bytes of shared memory (this: {}) and {} for all blocks, whole "
        "rows ({} columns) where staged",
        to_string(config), kernel.k_steps(), kernel.register_limit(), kernel.registers(),
        DirectStemSm80::kMostInstructions, kernel.instructions(), smem_per_block_anywhere(),
        kernel.smem_bytes(), target.smem_per_multiprocessor, kernel.of.q));
  }

  std::unique_ptr<Executable> make(const Conv2dProblem& a, const DeviceInfo& device,
                                   const Config& config) const override {
    const DirectStemSm80 kernel = direct_stem_sm80_kernel(a, config);
    const double delay = product_cycles(kernel, device) * static_cast<double>(config.at("stagger")) / 100;
    return std::make_unique<DirectStemExecutable>(kernel, static_cast<int>(std::min(delay, 1e6)), device);
  }
};

}  // namespace

CompileJob direct_stem_sm80_job(const DirectStemSm80& a, const std::string& arch) {
  const std::string config = fmt::format(
      "convtune::DirectStemSm80{{.of={},.warp_filters={},.warp_columns={},.warp_rows={},.filter_warps={},"
      ".row_warps={},.column_warps={},.steps={},.stages={},.blocks={},.staged={},.row_pitch={},"
      ".pixel_pitch={},.load_width={},.held={}}}",
      to_cuda(a.of), a.warp_filters, a.warp_columns, a.warp_rows, a.filter_warps, a.row_warps, a.column_warps,
      a.steps, a.stages, a.blocks, a.staged, a.row_pitch, a.pixel_pitch, a.load_width, a.held);
  return packing_job("direct_stem_sm80", config, arch);
}

DirectStemSm80 direct_stem_sm80_kernel(const Conv2dProblem& problem, const Config& config) {
  return DirectStemPlanned(problem).with(from_config<DirectStemConfig>(config));
}

const Algorithm& direct_stem_sm80() {
  static const DirectStem algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
