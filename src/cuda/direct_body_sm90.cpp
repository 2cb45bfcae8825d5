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
#include "cuda/kernel_algorithm.h"

namespace convtune::cuda {
namespace {

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
  DirectBodySm90 kernel{.conv = extents,
                        .filter_groups = small(config.filter_groups),
                        .position_groups = small(config.position_groups),
                        .positions = small(config.positions),
                        .strips = small(config.strips),
                        .channels = small(config.channels),
                        .stages = small(config.stages),
                        .staged = small(config.staged),
                        .producers = small(config.producers)};
  if (kernel.possible()) kernel.weight_stages = kernel.most_weight_stages(sm90_smem_per_block());
  return kernel;
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

class DirectBodyExecutable final : public PackingExecutable<DirectBodySm90> {
 public:
  DirectBodyExecutable(const DirectBodySm90& kernel, const DeviceInfo& device)
      : PackingExecutable(kernel, device, direct_body_sm90_job(kernel, device.isa)),
        blocks_(static_cast<unsigned>(std::min<long long>(kernel.tiles(), device.units))) {}

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    launch({blocks_}, stream, static_cast<const float*>(x), static_cast<const float*>(packed),
           static_cast<float*>(y));
  }

 private:
  const unsigned blocks_;
};

class DirectBody final : public KernelAlgorithm {
 public:
  DirectBody() : KernelAlgorithm("direct_body_sm90") {}

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
    return to_configs(configs_of(extents_of(a), device.units));
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config& config,
                  const Ceilings& ceilings) const override {
    const DirectBodySm90 kernel = with(extents_of(a), from_config<DirectBodyConfig>(config));
    const double flops = 2.0 * static_cast<double>(kernel.tiles()) * kernel.block_positions() *
                         kernel.block_filters() * kernel.blocks() * kernel.steps() * 8;
    return 1e6 * std::max(flops / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

  std::optional<StageView> stage_view(const Conv2dProblem& a, const DeviceInfo&,
                                      const Config& config) const override {
    const auto typed = from_config<DirectBodyConfig>(config);
    return stages_alone(with(extents_of(a), typed).threads() / 32, typed.stages,
                        [typed](std::int64_t stages) {
                          DirectBodyConfig other = typed;
                          other.stages = stages;
                          return to_config(other);
                        });
  }

 private:
  // What can be said without its configs.
  Support takes(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = needs_sm90(device); !support) return support;
    if (Support support = takes_tf32_nchw(a); !support) return support;
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

  Support takes_config(const Conv2dProblem& a, const DeviceInfo&, const Config& config) const override {
    const auto typed = from_config<DirectBodyConfig>(config);
    constexpr std::int64_t kMost = 1 << 20;
    if (Support support = within(config, 0, kMost); !support) return support;
    const DirectBodySm90 kernel = with(extents_of(a), typed);
    if (kernel.valid(sm90_smem_per_block())) return Support::yes();
    return Support::no(
        fmt::format("{} is not one of its configs for this problem: at most 3 groups in all, positions a "
                    "multiple of 8 up to 256 (160 with 3 groups), strips 1 to {}, channels a multiple of 8 "
                    "up to 64, stages 2 to 8, staged 0, 8 or 16, and {} bytes of shared memory",
                    to_string(config), kernel.conv.q, sm90_smem_per_block()));
  }

  std::unique_ptr<Executable> make(const Conv2dProblem& a, const DeviceInfo& device,
                                   const Config& config) const override {
    return std::make_unique<DirectBodyExecutable>(direct_body_sm90_kernel(a, config), device);
  }

  // The best valid ones by the estimate.
  static std::vector<DirectBodyConfig> configs_of(const Conv2dExtents& extents, int multiprocessors) {
    std::vector<Ranked<DirectBodyConfig>> ranked;
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
                if (!kernel.valid(sm90_smem_per_block()) || kernel.weight_stages < (stages > 2 ? 3 : 2))
                  continue;
                ranked.push_back({estimated_cycles(kernel, multiprocessors), config});
                break;
              }
            }
    return best_of(std::move(ranked), kMostCandidates);
  }
};

}  // namespace

CompileJob direct_body_sm90_job(const DirectBodySm90& a, const std::string& arch) {
  const std::string config = fmt::format(
      "convtune::DirectBodySm90{{.conv={},.filter_groups={},.position_groups={},.positions={},.strips={},"
      ".channels={},.stages={},.staged={},.producers={},.weight_stages={}}}",
      to_cuda(a.conv), a.filter_groups, a.position_groups, a.positions, a.strips, a.channels, a.stages,
      a.staged, a.producers, a.weight_stages);
  return packing_job("direct_body_sm90", config, arch);
}

DirectBodySm90 direct_body_sm90_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(extents_of(problem), from_config<DirectBodyConfig>(config));
}

const Algorithm& direct_body_sm90() {
  static const DirectBody algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
