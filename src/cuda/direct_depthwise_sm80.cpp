// `direct_depthwise_sm80`: depthwise layers of channels-last tensors on CUDA cores, compute capability 8.0
// and up (kernels/direct_depthwise_sm80.cuh). Which problems it takes, its search space, and what runs.
#include "cuda/direct_depthwise_sm80.h"

#include <fmt/format.h>

#include <algorithm>

#include "config.h"
#include "cuda/compiler.h"
#include "cuda/cuda.h"
#include "cuda/extents.h"
#include "cuda/kernel_algorithm.h"
#include "cuda/tile_work.h"
#include "target.h"
#include "time_model.h"

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMostTaps = 1024;
constexpr std::size_t kMostCandidates = 64;
constexpr double kHopeless = 2;  // times the best estimate
// Of an estimate, by which a config stands back for each product in straight code: a thousand of them compile
// for half a second, and estimates are no better than a few percent.
constexpr double kProductShare = 4e-5;

struct DirectDepthwiseConfig {
  std::int64_t rows = 1, columns = 1, channels = 4, down = 1, across = 1, passes = 1, ahead = 1, blocks = 1;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    field("rows", self.rows);
    field("columns", self.columns);
    field("channels", self.channels);
    field("down", self.down);
    field("across", self.across);
    field("passes", self.passes);
    field("ahead", self.ahead);
    field("blocks", self.blocks);
  }
};

DirectDepthwiseSm80 with(const Conv2dExtents& problem, const DirectDepthwiseConfig& config) {
  return {.problem = problem,
          .rows = static_cast<int>(config.rows),
          .columns = static_cast<int>(config.columns),
          .channels = static_cast<int>(config.channels),
          .down = static_cast<int>(config.down),
          .across = static_cast<int>(config.across),
          .passes = static_cast<int>(config.passes),
          .ahead = static_cast<int>(config.ahead),
          .blocks = static_cast<int>(config.blocks)};
}

class DirectDepthwiseExecutable final : public PackingExecutable<DirectDepthwiseSm80, float> {
 public:
  DirectDepthwiseExecutable(const DirectDepthwiseSm80& kernel, const DeviceInfo& device)
      : PackingExecutable(kernel, device, direct_depthwise_sm80_job(kernel, device.isa),
                          job_for_any_pointer(kernel, device.isa, direct_depthwise_sm80_job)) {}

  void run(const void* x, const void* packed, void* y, Stream stream) const override {
    launch({static_cast<unsigned>(config_.all_blocks())}, stream, static_cast<const float*>(x),
           static_cast<const float*>(packed), static_cast<float*>(y));
  }
};

// ---- The search space ----

// All, half, a quarter ... of `all`, and 1.
std::vector<int> parts(int all) {
  std::vector<int> result;
  for (int parts = 1; result.empty() || result.back() > 1; parts *= 2)
    if (const int part = DirectDepthwiseSm80::ceil_div(all, parts); result.empty() || part < result.back())
      result.push_back(part);
  return result;
}

// As they are needed, in parts, and few.
std::vector<int> pass_choices(int all) {
  std::vector<int> choices = parts(all);
  for (const int few : {2, 4})
    if (few < all && std::find(choices.begin(), choices.end(), few) == choices.end()) choices.push_back(few);
  return choices;
}

// Where there are many, half a warp, a whole one or more: others read shared memory with bank conflicts.
std::vector<int> channel_choices(int c) {
  if (c <= 16) return {DirectDepthwiseSm80::round_up(c, 4)};
  std::vector<int> choices = {16};
  for (int channels = 32; channels < c + 32 && channels <= 128; channels += 32)
    if (channels != 128 || c % 128 == 0) choices.push_back(channels);
  return choices;
}

// Blocks that shared memory and threads allow on a multiprocessor; registers are held to it.
int most_blocks(const DirectDepthwiseSm80& kernel, const Target& target) {
  if (kernel.smem_bytes() > target.smem_per_block) return 0;
  DirectDepthwiseSm80 held = kernel;
  for (held.blocks = occupancy(target, {kernel.threads(), 0, kernel.smem_bytes()}).blocks; held.blocks > 0;
       --held.blocks)
    if (held.registers() <= held.register_limit()) break;
  return held.blocks;
}

// Every valid config. `wasteful`: those with idle outputs and few threads too, for problems that have no
// other.
std::vector<DirectDepthwiseConfig> configs_of(const Conv2dExtents& problem, const Target& target,
                                              bool wasteful = false) {
  std::vector<DirectDepthwiseConfig> configs;
  const auto idle = [&](int tile, int extent) {
    return !wasteful && DirectDepthwiseSm80::ceil_div(extent, tile) * tile > extent + extent / 7;
  };
  const auto add = [&](DirectDepthwiseConfig config) {
    DirectDepthwiseSm80 kernel = with(problem, config);
    if (!kernel.possible()) return;
    kernel.blocks = most_blocks(kernel, target);
    config.blocks = kernel.blocks;
    if (kernel.blocks >= 1 && kernel.valid()) configs.push_back(config);
  };
  const std::vector<int> channel_counts = channel_choices(problem.c);
  // A ring hides rows that come behind products. Where there are few of those, tiles that are under way as a
  // whole, in several blocks beside each other, keep memory busier: 3x3 filters take 2 to 9 % less.
  const bool ring_pays = problem.r * problem.s >= 16;
  for (const int rows : {1, 2, 3, 4, 7, 8, 14}) {
    if (rows > problem.p || idle(rows, problem.p)) continue;
    for (const int columns : {1, 2, 3, 4, 5, 7, 8, 14}) {
      if (columns > problem.q || idle(columns, problem.q)) continue;
      const int sums = rows * columns;
      if (sums > 56 || (!wasteful && sums < 7) || !with(problem, {rows, columns}).valid()) continue;
      for (const int channels : channel_counts)
        for (const int across : parts(DirectDepthwiseSm80::ceil_div(problem.q, columns)))
          for (const int down : parts(DirectDepthwiseSm80::ceil_div(problem.p, rows))) {
            const int threads = channels * across * down;
            if (threads > 512 || (!wasteful && threads < 64) || idle(columns * across, problem.q)) continue;
            for (const int passes : pass_choices(DirectDepthwiseSm80::ceil_div(problem.p, rows * down)))
              for (const int ahead : {1, 2, 4, 8})
                if (ahead <= passes && (ring_pays || ahead == passes) &&
                    !idle(rows * down * passes, problem.p))
                  add({rows, columns, channels, down, across, passes, ahead, 1});
          }
    }
  }
  return configs.empty() && !wasteful ? configs_of(problem, target, true) : configs;
}

class DirectDepthwise final : public KernelAlgorithm {
 public:
  DirectDepthwise() : KernelAlgorithm("direct_depthwise_sm80") {}

  Support supports(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = takes(a, device); !support) return support;
    if (!configs_of(extents_of(a), target_of(device)).empty()) return Support::yes();
    const DirectDepthwiseSm80 least{.problem = extents_of(a)};
    return Support::no(fmt::format(
        "its least config needs {} bytes of shared memory (of {}), {} products in straight code (of {}) and "
        "a window of {}x{} (of {})",
        least.smem_bytes(), target_of(device).smem_per_block, least.taps(),
        DirectDepthwiseSm80::kMostProducts, least.strip_rows(), least.strip_columns(),
        DirectDepthwiseSm80::kMostWindow));
  }

  std::vector<Config> candidates(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (!takes(a, device)) return {};
    std::vector<Ranked<DirectDepthwiseConfig>> ranked;
    const Conv2dExtents problem = extents_of(a);
    const Target target = target_of(device);
    for (const DirectDepthwiseConfig& config : configs_of(problem, target)) {
      const DirectDepthwiseSm80 kernel = with(problem, config);
      const TileWork work = tile_work(kernel);
      const BlockShape block = {kernel.threads(), 0, work.tiles, kernel.blocks};
      ranked.push_back(
          {estimate_time(target, work, block).us * (1 + kProductShare * kernel.work().straight), config});
    }
    return to_configs(best_of(std::move(ranked), kMostCandidates, kHopeless));
  }

  double bound_us(const Conv2dProblem& a, const DeviceInfo&, const Config&,
                  const Ceilings& ceilings) const override {
    return 1e6 * std::max(a.flops() / ceilings.flops_per_second, a.bytes() / ceilings.bytes_per_second);
  }

 private:
  // What can be said without its configs. Every precision: fp32 products are at least as exact.
  Support takes(const Conv2dProblem& a, const DeviceInfo& device) const override {
    if (Support support = needs_sm80(device); !support) return support;
    if (Support support = takes_f32(a, Layout::nhwc); !support) return support;
    if (a.c != a.groups || a.k != a.groups)
      return Support::no(
          fmt::format("it is for one filter a channel: {} channels and {} filters in {} groups "
                      "are not",
                      a.c, a.k, a.groups));
    if (Support support = fits_extents(a); !support) return support;
    if (a.r > kMostTaps || a.s > kMostTaps || a.r * a.s > kMostTaps)
      return Support::no(fmt::format("a filter of {}x{} has more than {} taps", a.r, a.s, kMostTaps));
    constexpr std::int64_t kMostImage = 1 << 30;  // offsets in an image are ints
    if (a.h * a.w >= kMostImage / a.c || a.p() * a.q() >= kMostImage / a.c)
      return Support::no(fmt::format("an image of {} numbers, or its output of {}, is too large",
                                     a.h * a.w * a.c, a.p() * a.q() * a.c));
    return Support::yes();
  }

  Support takes_config(const Conv2dProblem& a, const DeviceInfo& device,
                       const Config& config) const override {
    const auto typed = from_config<DirectDepthwiseConfig>(config);
    if (Support support = within(config, 1, DirectDepthwiseSm80::kMostThreads); !support) return support;
    const DirectDepthwiseSm80 kernel = with(extents_of(a), typed);
    if (!kernel.possible())
      return Support::no(fmt::format(
          "{} is no config: rows and columns are 1 to {}, channels are a multiple of 4, ahead is 1 to {}, "
          "blocks are 1 to 32, with at most {} threads",
          to_string(config), DirectDepthwiseSm80::kMostStrip, DirectDepthwiseSm80::kMostAhead,
          DirectDepthwiseSm80::kMostThreads));
    const Target target = target_of(device);
    const bool fits = kernel.valid() && kernel.smem_bytes() <= target.smem_per_block &&
                      kernel.blocks <= occupancy(target, {kernel.threads(), 0, kernel.smem_bytes()}).blocks;
    if (fits) return Support::yes();
    return Support::no(fmt::format(
        "{} is not one of its configs for this problem: {} products (this: {}), {} registers (this: "
        "{}), {} bytes of shared memory (this: {}) and {} for all blocks",
        to_string(config), DirectDepthwiseSm80::kMostProducts, kernel.work().products,
        kernel.register_limit(), kernel.registers(), target.smem_per_block, kernel.smem_bytes(),
        target.smem_per_multiprocessor));
  }

  std::unique_ptr<Executable> make(const Conv2dProblem& a, const DeviceInfo& device,
                                   const Config& config) const override {
    return std::make_unique<DirectDepthwiseExecutable>(direct_depthwise_sm80_kernel(a, config), device);
  }
};

}  // namespace

CompileJob direct_depthwise_sm80_job(const DirectDepthwiseSm80& a, const std::string& arch) {
  const std::string config = fmt::format(
      "convtune::DirectDepthwiseSm80{{.problem={},.rows={},.columns={},.channels={},.down={},"
      ".across={},.passes={},.ahead={},.blocks={},.aligned={}}}",
      to_cuda(a.problem), a.rows, a.columns, a.channels, a.down, a.across, a.passes, a.ahead, a.blocks,
      a.aligned);
  return packing_job("direct_depthwise_sm80", config, arch);
}

DirectDepthwiseSm80 direct_depthwise_sm80_kernel(const Conv2dProblem& problem, const Config& config) {
  return with(extents_of(problem), from_config<DirectDepthwiseConfig>(config));
}

const Algorithm& direct_depthwise_sm80() {
  static const DirectDepthwise algorithm;
  return algorithm;
}

}  // namespace convtune::cuda
