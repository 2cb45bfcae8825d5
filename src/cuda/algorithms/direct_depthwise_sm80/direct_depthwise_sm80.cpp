// `direct_depthwise_sm80`: depthwise layers of channels-last tensors, of floats or of halves, on CUDA cores,
// compute capability 8.0 and up (direct_depthwise_sm80.cuh). Which problems it takes, its search space, and
// what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMostTaps = 1024;
// The share of its estimate that a config is put back by for each product in straight code: a thousand of
// them compile for half a second, and estimates are no better than a few percent.
constexpr double kProductShare = 4e-5;

// A tile of one image, gone through in passes. All warps load, multiply and store, in turns.
TileWork work_of(const DirectDepthwiseSm80& a) {
  const ConvExtents& conv = a.conv;
  const DirectDepthwiseSm80::Work strip = a.work();
  const double warps = a.threads() / 32.0, outputs = 1.0 * a.rows * a.columns, passes = a.passes;
  const double words = 1.0 * a.input_rows() * a.row_words(), width = a.width, word = a.word();
  const double rows = read_inside(
      a.bands(), [&](int band) { return a.first_row(band); }, a.input_rows(), conv.h);
  const double columns = read_inside(
      a.sides(), [&](int side) { return a.first_column(side); }, a.input_columns(), conv.w);
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.cuda_cores = true;
  work.load_beside = a.passes > 1;
  work.load.instructions = words / 32 * (a.vectors() ? 4 : a.words() ? 14 : 20);
  work.load.wavefronts = words / 32;
  work.load.l2_bytes = 4 * rows * columns * a.words_abreast() / (1.0 * a.bands() * a.sides());
  const double under_way = std::min(a.passes == a.ahead ? 1.0 : a.ahead / passes, 1.0);
  work.in_flight_bytes = std::max(work.load.l2_bytes * under_way, 1.0);
  const double weights = a.taps() / (a.weights_in_registers() ? passes : 1);  // that are read
  // Channels that are no whole warp leave bank conflicts.
  const int abreast = a.words_abreast();
  const double conflicts = abreast % 32 == 0 || abreast * a.columns * conv.stride_w % 32 == 16 ? 1 : 2;
  // Halves are widened by an instruction each.
  const double read = strip.inputs * (word == 1 ? 1 : 1 + width), products = width * strip.products;
  work.multiply.instructions = warps * (60 + passes * (30 + weights + read + products));
  work.multiply.wavefronts = warps * passes * (strip.inputs * conflicts + width * weights);
  if (a.passes > 1) {                // the copies are under way meanwhile, the instructions are not
    constexpr double kSlower = 2.5;  // than multiply-adds, which do not wait for each other
    work.multiply.instructions += kSlower * work.load.instructions;
    work.load.instructions = 0;
  }
  work.multiply.waits = 3 * passes;
  work.store.instructions = warps * passes * outputs * (1 + width);
  work.store.wavefronts = warps * passes * outputs;
  add_epilogue(work.store, conv, 32 * warps * passes * outputs * width);
  if (conv.residual) {
    const double residuals = warps * outputs;  // words, by warps
    work.store.instructions += passes * residuals * 2.5;
    // A part of kWaitCycles. A residual that has no room to wait comes from memory to where it is added;
    // others are waited for, too, where few blocks do something else meanwhile.
    work.store.waits += (a.can_wait() ? 9 : 14) * passes;
    if (a.can_wait()) {  // on its way beside the input
      work.store.wavefronts += passes * residuals * 2;
      work.load.l2_bytes += 128 * passes * residuals;
      work.in_flight_bytes += 128 * residuals;
    } else {
      work.store.l2_bytes += 128 * passes * residuals;
    }
  }
  // Whatever a position stores in whole lines, or as all channels, is one piece with its neighbours, which
  // are stored at the same time by this block or by others.
  const bool whole = a.chunks() == 1 || abreast % 32 == 0;
  store_in_pieces(work, outputs_of(conv) / word / work.tiles,
                  whole ? 1.0 * a.tile_columns() * conv.c / word : abreast);
  return work;
}

// ---- The search space ----

// The numbers of passes worth a try: all that are needed, parts of that, and few.
std::vector<int> pass_choices(int all) {
  std::vector<int> choices = parts_of(all);
  for (const int few : {2, 4})
    if (few < all && std::find(choices.begin(), choices.end(), few) == choices.end()) choices.push_back(few);
  return choices;
}

// If there are many, half a warp, a whole one or more: others read shared memory with bank conflicts.
std::vector<int> word_choices(int words) {
  if (words <= 16) return {round_up(words, 4)};
  std::vector<int> choices = {16};
  for (int some = 32; some < words + 32 && some <= 128; some += 32)
    if (some != 128 || words % 128 == 0) choices.push_back(some);
  return choices;
}
// Half precision leaves shared memory half as busy, and channels are half as many words: what counts is that
// few threads are idle, in chunks of about all, 72 or 36 words.
std::vector<int> channel_choices(const ConvExtents& conv) {
  const int word = DirectDepthwiseSm80::least(conv).word(), words = ceil_div(conv.c, word);
  std::vector<int> choices = word_choices(words);
  if (word > 1 && words > 16) {
    std::erase_if(choices, [&](int some) { return round_up(words, some) > words + words / 7; });
    for (const int most : {128, 72, 36})
      if (const int some = round_up(ceil_div(words, ceil_div(words, most)), 4);
          std::find(choices.begin(), choices.end(), some) == choices.end())
        choices.push_back(some);
  }
  for (int& some : choices) some *= word;
  return choices;
}

// Every valid config. `wasteful`: those with idle outputs and few threads too, for problems that have no
// other.
std::vector<DirectDepthwiseSm80> depthwise_configs_of(const ConvExtents& conv, const Target& target,
                                                      bool wasteful = false) {
  std::vector<DirectDepthwiseSm80> configs;
  const auto idle = [&](int tile, int extent) {
    return !wasteful && ceil_div(extent, tile) * tile > extent + extent / 7;
  };
  const auto add = [&](DirectDepthwiseSm80 kernel) {
    if (!kernel.possible()) return;
    // Room for residuals is worth more than another block.
    kernel.residual_waits = kernel.can_wait();
    kernel.blocks = most_blocks(kernel, target);
    if (kernel.blocks == 0 && kernel.residual_waits) {
      kernel.residual_waits = false;
      kernel.blocks = most_blocks(kernel, target);
    }
    if (kernel.blocks >= 1 && kernel.valid()) configs.push_back(kernel);
  };
  const std::vector<int> channel_counts = channel_choices(conv);
  const int word = DirectDepthwiseSm80::least(conv).word();
  // A ring hides rows that come behind products. Where there are few of those, tiles that are under way as a
  // whole, in several blocks beside each other, keep memory busier: 3x3 filters take 2 to 9 % less.
  const bool ring_pays = conv.r * conv.s >= 16;
  // A channel a thread of halves: where filters are so large that few threads have room for two.
  std::vector<int> widths = {word};
  if (word > 1 && conv.r * conv.s >= 16) widths.push_back(1);
  for (const int rows : {1, 2, 3, 4, 7, 8, 14}) {
    if (rows > conv.p || idle(rows, conv.p)) continue;
    for (const int columns : {1, 2, 3, 4, 5, 7, 8, 14}) {
      if (columns > conv.q || idle(columns, conv.q)) continue;
      const int sums = rows * columns;
      if (sums > 56 || (!wasteful && sums < 7) || !DirectDepthwiseSm80::least(conv, rows, columns).valid())
        continue;
      for (const int channels : channel_counts)
        for (const int width : widths)
          for (const int across : parts_of(ceil_div(conv.q, columns)))
            for (const int down : parts_of(ceil_div(conv.p, rows))) {
              const int threads = channels / width * across * down;
              if (threads > 512 || (!wasteful && threads < 64) || idle(columns * across, conv.q)) continue;
              for (const int passes : pass_choices(ceil_div(conv.p, rows * down)))
                for (const int ahead : {1, 2, 4, 8})
                  if (ahead <= passes && (ring_pays || ahead == passes) &&
                      !idle(rows * down * passes, conv.p))
                    add({conv, rows, columns, channels, width, down, across, passes, ahead, 1});
            }
    }
  }
  return configs.empty() && !wasteful ? depthwise_configs_of(conv, target, true) : configs;
}

class DirectDepthwise final : public KernelAlgorithmOf<DirectDepthwiseSm80> {
 public:
  DirectDepthwise() : KernelAlgorithmOf("direct_depthwise_sm80") {}

 private:
  ChannelsLast channels_last() const override { return {.x = true, .y = true}; }
  // Every precision: fp32 products are at least as exact.
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    if (Support support = first_refusal(
            {needs_sm80(device), takes_one_type(a, Layout::nhwc), takes_depthwise(a), fits_extents(a)});
        !support)
      return support;
    if (a.r > kMostTaps || a.s > kMostTaps || a.r * a.s > kMostTaps)
      return Support::no(fmt::format("a filter of {}x{} has more than {} taps", a.r, a.s, kMostTaps));
    constexpr std::int64_t kMostImage = 1 << 30;  // offsets in an image are ints
    if (a.h * a.w >= kMostImage / a.c || a.p() * a.q() >= kMostImage / a.c)
      return Support::no(fmt::format("an image of {} numbers, or its output of {}, is too large",
                                     a.h * a.w * a.c, a.p() * a.q() * a.c));
    return Support::yes();
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return !depthwise_configs_of(extents_of(a), target_of(device)).empty();
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo& device) const override {
    const auto least = DirectDepthwiseSm80::least(extents_of(a));
    return fmt::format(
        "its least config needs {} bytes of shared memory (of {}), {} products in straight code (of {}) and "
        "a window of {}x{} (of {})",
        least.smem_bytes(), target_of(device).smem_per_block, least.taps(),
        DirectDepthwiseSm80::kMostProducts, least.strip_rows(), least.strip_columns(),
        DirectDepthwiseSm80::kMostWindow);
  }
  std::vector<DirectDepthwiseSm80> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<DirectDepthwiseSm80>> ranked;
    const Target target = target_of(device);
    for (const DirectDepthwiseSm80& kernel : depthwise_configs_of(extents_of(a), target)) {
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
      ranked.back().cost *= 1 + kProductShare * kernel.work().straight;
    }
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const DirectDepthwiseSm80& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(
          fmt::format("rows and columns are 1 to {}, channels are a multiple of {}, ahead is 1 to {}, blocks "
                      "are 1 to 32, "
                      "with at most {} threads",
                      DirectDepthwiseSm80::kMostStrip, 4 * kernel.word(), DirectDepthwiseSm80::kMostAhead,
                      DirectDepthwiseSm80::kMostThreads));
    const Target target = target_of(device);
    if (kernel.valid() && kernel.smem_bytes() <= target.smem_per_block && stays_resident(kernel, target))
      return Support::yes();
    return Support::no(fmt::format("{} products (this: {}), {}", DirectDepthwiseSm80::kMostProducts,
                                   kernel.work().products, needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const DirectDepthwiseSm80& kernel, const DeviceInfo& device) const override {
    const Target target = target_of(device);
    DirectDepthwiseSm80 first = kernel;
    first.residual_waits = first.can_wait();
    if (first.smem_bytes() > target.smem_per_block || !stays_resident(first, target)) first = kernel;
    LaunchPlan plan =
        plan_of(first, device, {static_cast<unsigned>(kernel.all_blocks())}, kEpilogueArguments);
    if (kernel.conv.residual) {  // if the first spills
      DirectDepthwiseSm80 other = kernel;
      other.residual_by_rows = true;
      plan.configs.push_back(to_cuda(other));
    }
    return plan;
  }
  TileWork counted(const DirectDepthwiseSm80& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& direct_depthwise_sm80() {
  return once([] { return DirectDepthwise(); });
}

}  // namespace convtune::cuda
