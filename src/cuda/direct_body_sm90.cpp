// `direct_body_sm90`: many channels on compute capability 9.0 (kernels/direct_body_sm90.cuh).
// Which problems it takes, its search space, and what runs.
#include "cuda/direct_body_sm90.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/extents.h"
#include "cuda/forecast.h"
#include "cuda/kernel.h"

namespace convtune::cuda {
namespace {

constexpr const char* kFile = "direct_body_sm90.cuh";
constexpr int kMostCandidates = 48;

struct DirectBodyConfig {
  std::int64_t filter_groups = 1, position_groups = 2, positions = 256, strips = 1, channels = 8, stages = 3,
               staged = 16, producers = 1;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("filter_groups", self.filter_groups);
    field("position_groups", self.position_groups);
    field("positions", self.positions);
    field("strips", self.strips);
    field("channels", self.channels);
    field("stages", self.stages);
    field("staged", self.staged);
    field("producers", self.producers);
  }
};

DirectBodySm90 with(const Conv2dExtents& extents, const DirectBodyConfig& config) {
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  return {.conv = extents,
          .filter_groups = small(config.filter_groups),
          .position_groups = small(config.position_groups),
          .positions = small(config.positions),
          .strips = small(config.strips),
          .channels = small(config.channels),
          .stages = small(config.stages),
          .staged = small(config.staged),
          .producers = small(config.producers)};
}

// Clock cycles of the busiest multiprocessor, roughly. Products, loads and stores overlap but for a part.
double estimated_cycles(const DirectBodySm90& kernel, int multiprocessors) {
  constexpr double kL2Bytes = 26, kMemoryBytes = 13;        // that a multiprocessor gets in a cycle
  constexpr double kOperandBytes = 110, kLoadCycles = 160;  // from shared memory; a warp's 4 loads and store
  constexpr double kTileCycles = 2500, kStagedCycles = 5;   // to begin a tile; to store a position
  constexpr double kSegmentCycles = 30, kStageCycles = 200, kGroupCycles = 5;  // of waiting, and of copies
  const double blocks = kernel.blocks(), columns = kernel.positions;
  const double product = std::max(columns / 2, (2048 + columns * 32) / kOperandBytes);
  const double products = blocks * kernel.steps() * kernel.consumers() * product;
  const double input = blocks * kernel.unit_chunks() * kernel.stage_units();
  const double weights = blocks * kernel.weight_groups() * kernel.weight_stage_bytes();
  const double l2 = (input * 16 + weights) / kL2Bytes, loads = input / kernel.loaders() * kLoadCycles;
  const double outputs = columns * kernel.consumers() * kStagedCycles * (kernel.staged == 0 ? 4 : 1) +
                         16.0 * kernel.most_segments() * kSegmentCycles;
  const double stages = blocks * (kStageCycles + kernel.weight_groups() * kGroupCycles);
  const double waves = std::ceil(static_cast<double>(kernel.tiles()) / multiprocessors);
  const double all = waves * (std::max({products, l2, loads}) + stages + outputs + kTileCycles);
  const double bytes = 4.0 * kernel.conv.n *
                       (static_cast<double>(kernel.conv.c) * kernel.conv.h * kernel.conv.w +
                        static_cast<double>(kernel.conv.k) * kernel.conv.p * kernel.conv.q);
  return std::max(all, bytes / kMemoryBytes / multiprocessors) + 0.1 * all;
}

class DirectBodyExecutable final : public Executable {
 public:
  DirectBodyExecutable(const DirectBodySm90& kernel, const DeviceInfo& device, const CompileJob& job)
      : DirectBodyExecutable(kernel, device, job, compile(job)) {}

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
    run_.launch({blocks_}, {static_cast<unsigned>(config_.threads())},
                static_cast<std::size_t>(config_.smem_bytes()), stream, static_cast<const float*>(x),
                static_cast<const float*>(packed), static_cast<float*>(y));
  }

 private:
  DirectBodyExecutable(const DirectBodySm90& kernel, const DeviceInfo& device, const CompileJob& job,
                       const CompiledModule& module)
      : config_(kernel),
        device_(device.device.index),
        blocks_(static_cast<unsigned>(std::min<long long>(kernel.tiles(), device.units))),
        run_(device_, module, job.kernels[0], static_cast<std::size_t>(kernel.smem_bytes())),
        pack_(device_, module, job.kernels[1]) {}

  const DirectBodySm90 config_;
  const int device_;
  const unsigned blocks_;
  const Kernel run_, pack_;
};

class DirectBody final : public Algorithm {
 public:
  std::string_view name() const override { return "direct_body_sm90"; }
  Device::Kind device_kind() const override { return Device::Kind::cuda; }

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = takes(a, device); !support) return support;
    if (configs_of(extents_of(a), device.units).empty())
      return Support::no(
          "no tile of it fits: its window of the input is more than shared memory, or its offsets are more "
          "than an int");
    return Support::yes();
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!takes(a, device)) return {};
    std::vector<Config> configs;
    for (const DirectBodyConfig& config : configs_of(extents_of(a), device.units))
      configs.push_back(to_config(config));
    return configs;
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectBodySm90 kernel = with(extents_of(a), from_config<DirectBodyConfig>(config));
    const double flops = 2.0 * static_cast<double>(kernel.tiles()) * kernel.block_positions() *
                         kernel.block_filters() * kernel.blocks() * kernel.steps() * 8;
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  std::optional<double> estimated_us(const Conv2dProblem& a, const DeviceInfo& device,
                                     const Config& config) const override {
    return forecast_us(name(), a, device, config);
  }

  Support accepts(const Conv2dProblem& a, const DeviceInfo& device, const Config& config) const override {
    if (Support support = takes(a, device); !support) return support;
    try {
      const auto typed = from_config<DirectBodyConfig>(config);
      constexpr std::int64_t kMost = 1 << 20;
      for (const auto& [name, value] : config.values)
        if (value < 0 || value > kMost)
          return Support::no(fmt::format("{} must be 0 to {}, not {}", name, kMost, value));
      const DirectBodySm90 kernel = with(extents_of(a), typed);
      if (kernel.valid()) return Support::yes();
      return Support::no(
          fmt::format("{} is not one of its configs for this problem: at most 3 groups in all, positions a "
                      "multiple of 8 up to 256 (160 with 3 groups), strips 1 to {}, channels a multiple of 8 "
                      "up to 64, stages 2 to 8, staged 0, 8 or 16, and {} bytes of shared memory",
                      to_string(config), kernel.conv.q, DirectBodySm90::kMostSmemBytes));
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const Conv2dProblem& a, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(a, device, config); !support)
      throw Error(ErrorKind::unsupported, "direct_body_sm90 cannot run this problem: " + support.reason());
    const DirectBodySm90 kernel = direct_body_sm90_kernel(a, config);
    return std::make_unique<DirectBodyExecutable>(kernel, device, direct_body_sm90_job(kernel, device.isa));
  }

  std::optional<StageView> stage_view(const Conv2dProblem& a, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<DirectBodyConfig>(config);
    StageView view;
    view.parameters.warps_name = "warps", view.parameters.stages_name = "stages";
    view.parameters.stages = {2, 3, 4, 5, 6, 7, 8};
    view.config = {with(extents_of(a), typed).threads() / 32, typed.stages};
    view.with = [typed](const StageConfig& wanted) {
      DirectBodyConfig other = typed;
      other.stages = wanted.stages;
      return to_config(other);
    };
    view.warps = {{},
                  fmt::format("warps stays {}: each warpgroup has a tile or a role of its own, and a block "
                              "has a multiprocessor for itself",
                              view.config.warps)};
    return view;
  }

  std::string source_hash() const override { return kernel_source_hash(kFile); }

 private:
  // What can be said without its configs.
  static Support takes(const Conv2dProblem& a, const DeviceInfo& device) {
    if (device.isa != "sm_90a")
      return Support::no(fmt::format("it needs compute capability 9.0, and this is {}", device.isa));
    if (a.dtype != DType::f32) return Support::no("it is for f32 tensors only");
    if (a.layout != Layout::nchw) return Support::no("it is for NCHW only");
    if (a.precision == Precision::fp32)
      return Support::no("it multiplies in tf32, which is less than fp32 asks for");
    if (a.groups != 1) return Support::no(fmt::format("it is for one group only, not {}", a.groups));
    if (Support support = fits_extents(a); !support) return support;
    constexpr int kFewChannels = 8;
    if (a.c < kFewChannels)
      return Support::no(fmt::format("it is for {} input channels and more, not for {}", kFewChannels, a.c));
    if (a.r * a.s > DirectBodySm90::kMostSteps)
      return Support::no(
          fmt::format("it is for filters of up to {} taps, not {}", DirectBodySm90::kMostSteps, a.r * a.s));
    return Support::yes();
  }

  // The best valid ones by the estimate.
  static std::vector<DirectBodyConfig> configs_of(const Conv2dExtents& extents, int multiprocessors) {
    struct Ranked {
      double cycles;
      DirectBodyConfig config;
    };
    std::vector<Ranked> ranked;
    const DirectBodySm90 plain = with(extents, {});
    std::vector<int> strips = {1};
    for (const int width : {128, 64, 32, 16})
      if (extents.q > width) strips.push_back(DirectBodySm90::ceil_div(extents.q, width));
    for (const auto& [filter_groups, position_groups] : {std::pair{2, 1}, {1, 2}, {1, 1}, {3, 1}})
      for (const int some : strips)
        for (const int channels : {8, 16, 32})
          for (const int producers : {1, 2})
            for (int positions = 256; positions >= 8; positions -= 8) {
              if ((filter_groups - 1) * DirectBodySm90::kTile >= extents.k) continue;
              if (channels > 8 && plain.taps() * channels > 64) continue;
              if (producers > 1 && plain.taps() > 1) continue;
              // The others of this size are for where it does not fit.
              for (const auto& [stages, staged] :
                   {std::pair{3, 16}, {3, 8}, {4, 16}, {4, 8}, {2, 8}, {2, 0}}) {
                const DirectBodyConfig config{filter_groups, position_groups, positions, some,
                                              channels,      stages,          staged,    producers};
                const DirectBodySm90 kernel = with(extents, config);
                if (!kernel.valid() || kernel.weight_stages() < (stages > 2 ? 3 : 2)) continue;
                ranked.push_back({estimated_cycles(kernel, multiprocessors), config});
                break;
              }
            }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Ranked& one, const Ranked& other) { return one.cycles < other.cycles; });
    if (ranked.size() > kMostCandidates) ranked.resize(kMostCandidates);
    std::vector<DirectBodyConfig> configs;
    for (const Ranked& one : ranked) configs.push_back(one.config);
    return configs;
  }
};

}  // namespace

CompileJob direct_body_sm90_job(const DirectBodySm90& a, const std::string& arch) {
  const std::string config = fmt::format(
      "convtune::DirectBodySm90{{.conv={},.filter_groups={},.position_groups={},.positions={},.strips={},"
      ".channels={},.stages={},.staged={},.producers={}}}",
      to_cuda(a.conv), a.filter_groups, a.position_groups, a.positions, a.strips, a.channels, a.stages,
      a.staged, a.producers);
  CompileJob job = kernel_job(kFile, fmt::format("convtune::direct_body_sm90<{}>", config), arch);
  job.kernels.push_back(fmt::format("convtune::pack_direct_body_sm90<{}>", config));
  return job;
}

DirectBodySm90 direct_body_sm90_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(extents_of(problem), from_config<DirectBodyConfig>(config));
}

const Algorithm& direct_body_sm90() {
  static const DirectBody algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
