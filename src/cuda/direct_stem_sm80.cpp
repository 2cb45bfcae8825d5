// `direct_stem_sm80`: few input channels on compute capability 8.0 and up (kernels/direct_stem_sm80.cuh).
// Which problems it takes, and what runs. The fields of a config: kernels/direct_stem_sm80.h.
#include "cuda/direct_stem_sm80.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "config.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/direct_stem_sm80_configs.h"
#include "cuda/extents.h"
#include "cuda/forecast.h"
#include "cuda/kernel.h"
#include "cuda/tile_work.h"
#include "time_model.h"

namespace convtune::cuda {
namespace {

constexpr const char* kFile = "direct_stem_sm80.cuh";
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
    Compiled made{std::move(job), std::move(module)};
    if (!best || made.spill_bytes() < best->spill_bytes()) best = std::move(made);
    if (best->spill_bytes() == 0) break;
  }
  return *std::move(best);
}

class DirectStemExecutable final : public Executable {
 public:
  DirectStemExecutable(const DirectStemSm80& kernel, int delay, const DeviceInfo& device)
      : DirectStemExecutable(kernel, delay, device, compiled(kernel, device.isa)) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(config_.packed_floats()) * sizeof(float);
  }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    fill(device_, static_cast<float*>(packed) + config_.flag_at(), 0, 1, stream);
    constexpr unsigned kThreads = 256;
    const auto blocks = static_cast<unsigned>((config_.flag_at() + kThreads - 1) / kThreads);
    pack_.launch({blocks}, {kThreads}, 0, stream, static_cast<const float*>(w),
                 static_cast<const float*>(bias), static_cast<unsigned*>(packed));
  }

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    run_.launch({static_cast<unsigned>(config_.all_blocks())}, {static_cast<unsigned>(config_.threads())},
                static_cast<std::size_t>(config_.smem_bytes()), stream, static_cast<const float*>(x),
                static_cast<const float*>(packed), static_cast<float*>(y), multiprocessors_, delay_);
  }

 private:
  DirectStemExecutable(const DirectStemSm80& kernel, int delay, const DeviceInfo& device,
                       const Compiled& made)
      : config_(kernel),
        device_(device.device.index),
        multiprocessors_(device.units),
        delay_(delay),
        run_(device_, made.module, made.job.kernels[0], static_cast<std::size_t>(kernel.smem_bytes())),
        pack_(device_, made.module, made.job.kernels[1]) {}

  const DirectStemSm80 config_;
  const int device_, multiprocessors_, delay_;
  const Kernel run_, pack_;
};

class DirectStem final : public Algorithm {
 public:
  std::string_view name() const override { return "direct_stem_sm80"; }
  Device::Kind device_kind() const override { return Device::Kind::cuda; }

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = takes(a); !support) return support;
    const DirectStemPlanned planned(a);
    if (!direct_stem_sm80_configs(planned, device).empty()) return Support::yes();
    DirectStemConfig least{.column_warps = 4, .steps = 2, .stages = 3};
    return Support::no(
        fmt::format("{} bytes of shared memory and {} instructions are about the least that "
                    "it needs here, and it has {} and {}",
                    planned.with(least).smem_bytes(), planned.with(least).instructions(),
                    DirectStemSm80::kMostSmemBytes, DirectStemSm80::kMostInstructions));
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!takes(a)) return {};
    struct Ranked {
      double us;
      DirectStemConfig config;
    };
    std::vector<Ranked> ranked;
    const DirectStemPlanned planned(a);
    const Target target = target_of(device);
    for (const DirectStemConfig& config : direct_stem_sm80_configs(planned, device)) {
      const DirectStemSm80 kernel = planned.with(config);
      // The launch bounds keep `blocks` resident.
      const TileWork work = tile_work(kernel, planned.wavefronts_at(kernel.row_pitch));
      const BlockShape block = {kernel.threads(), 0, work.tiles, kernel.blocks};
      ranked.push_back({estimate_time(target, work, block).us, config});
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Ranked& one, const Ranked& other) { return one.us < other.us; });
    std::vector<Config> configs;
    for (const Ranked& one : ranked)
      if (configs.size() < kMostCandidates && one.us <= kHopeless * ranked.front().us)
        configs.push_back(to_config(one.config));
    return configs;
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectStemSm80 kernel = DirectStemPlanned(a).with(from_config<DirectStemConfig>(config));
    const double flops = 16.0 * kernel.k_steps() * kernel.filters() * kernel.band() * kernel.columns() *
                         static_cast<double>(kernel.all_blocks());
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  std::optional<double> estimated_us(const Conv2dProblem& a, const DeviceInfo& device,
                                     const Config& config) const override {
    return forecast_us(name(), a, device, config);
  }

  Support accepts(const Conv2dProblem& a, const DeviceInfo& device, const Config& config) const override {
    if (Support support = takes(a); !support) return support;
    try {
      const auto typed = from_config<DirectStemConfig>(config);
      for (const auto& [name, value] : config.values)
        if (value < 0 || value > 256)
          return Support::no(fmt::format("{} must be 0 to 256, not {}", name, value));
      const DirectStemSm80 kernel = DirectStemPlanned(a).with(typed);
      const int smem_bytes = direct_stem_sm80_smem_bytes(device);
      if (kernel.valid(smem_bytes)) return Support::yes();
      if (!kernel.possible())
        return Support::no(fmt::format(
            "{} is no config: warp_filters is a multiple of 16 up to 128, blocks are 1 to 8, staged "
            "is 0 or 1, all others 1 or more with at most {} warps",
            to_string(config), DirectStemSm80::kMostWarps));
      return Support::no(
          fmt::format("{} is not one of its configs for this problem: 2 stages or all {} steps in one, {} "
                      "registers (this: "
                      "{}), {} instructions (this: {}), {} bytes of shared memory (this: {}) and {} for all "
                      "blocks, whole "
                      "rows ({} columns) where staged",
                      to_string(config), kernel.k_steps(), kernel.register_limit(), kernel.registers(),
                      DirectStemSm80::kMostInstructions, kernel.instructions(),
                      DirectStemSm80::kMostSmemBytes, kernel.smem_bytes(), smem_bytes, kernel.of.q));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const Conv2dProblem& a, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(a, device, config); !support)
      throw Error(ErrorKind::unsupported, "direct_stem_sm80 cannot run this problem: " + support.reason());
    const DirectStemSm80 kernel = direct_stem_sm80_kernel(a, config);
    const double delay = product_cycles(kernel, device) * static_cast<double>(config.at("stagger")) / 100;
    return std::make_unique<DirectStemExecutable>(kernel, static_cast<int>(std::min(delay, 1e6)), device);
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

  std::string source_hash() const override { return kernel_source_hash(kFile); }

 private:
  // What can be said without its configs.
  static Support takes(const Conv2dProblem& a) {
    if (a.dtype != DType::f32) return Support::no("it is for f32 tensors only");
    if (a.layout != Layout::nchw) return Support::no("it is for NCHW only");
    if (a.precision == Precision::fp32)
      return Support::no("it multiplies in tf32, which is less than fp32 asks for");
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
};

}  // namespace

CompileJob direct_stem_sm80_job(const DirectStemSm80& a, const std::string& arch) {
  const std::string config = fmt::format(
      "convtune::DirectStemSm80{{.of={},.warp_filters={},.warp_columns={},.warp_rows={},.filter_warps={},"
      ".row_warps={},.column_warps={},.steps={},.stages={},.blocks={},.staged={},.row_pitch={},"
      ".pixel_pitch={},.load_width={},.held={}}}",
      to_cuda(a.of), a.warp_filters, a.warp_columns, a.warp_rows, a.filter_warps, a.row_warps, a.column_warps,
      a.steps, a.stages, a.blocks, a.staged, a.row_pitch, a.pixel_pitch, a.load_width, a.held);
  CompileJob job = kernel_job(kFile, fmt::format("convtune::direct_stem_sm80<{}>", config), arch);
  job.kernels.push_back(fmt::format("convtune::pack_direct_stem_sm80<{}>", config));
  return job;
}

DirectStemSm80 direct_stem_sm80_kernel(const Conv2dProblem& problem, const Config& config) {
  return DirectStemPlanned(problem).with(from_config<DirectStemConfig>(config));
}

const Algorithm& direct_stem_sm80() {
  static const DirectStem algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
