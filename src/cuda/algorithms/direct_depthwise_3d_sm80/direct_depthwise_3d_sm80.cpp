// `direct_depthwise_3d_sm80`: depthwise layers in three dimensions, of floats or of halves, in either layout,
// on CUDA cores, compute capability 8.0 and up (direct_depthwise_3d_sm80.cuh). Which problems it takes, its
// search space, and what runs.
#include <fmt/format.h>

#include <algorithm>

#include "base/fork_gate.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/direct_depthwise_3d_sm80/config.h"
#include "cuda/launch/extents.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/tile_work.h"
#include "model/target_of.h"
#include "model/time_model.h"

namespace convtune::cuda {
namespace {

using Kernel = DirectDepthwise3dSm80;

constexpr std::int64_t kMostTaps = 1024;
// The share of its estimate that a config is put back by for each product in straight code: a thousand of
// them compile for half a second.
constexpr double kProductShare = 4e-5;

// A tile of frames, which come one after the other. All warps load, multiply and store, in turns.
TileWork work_of(const Kernel& a) {
  const ConvExtents& conv = a.conv;
  const double warps = a.threads() / 32.0, turns = a.frames + a.live() - 1, frames = turns * a.turn_frames();
  const double copies = 1.0 * a.lines() * a.line_elements() / a.copied() / 32;
  const double outputs = 1.0 * a.rows * a.columns, word = a.word();
  const double rows = read_inside(
      a.bands(), [&](int band) { return a.first_row(band); }, a.input_rows(), conv.h);
  const double columns = read_inside(
      a.sides(), [&](int side) { return a.first_column(side); }, a.input_columns(), conv.w);
  const double read = rows * columns * a.channels / (1.0 * a.bands() * a.sides()) * size_of(conv.x_type);
  TileWork work;
  work.tiles = static_cast<double>(a.all_blocks());
  work.cuda_cores = true;
  work.load_beside = true;
  work.load.wavefronts = frames * copies * (a.copied() == a.word() ? 1 : 4);
  work.load.l2_bytes = frames * read;
  work.in_flight_bytes = (a.stages - 1) * read;
  // Halves are widened, an instruction each. Strips of neighbouring channels that are no whole warp, and
  // vectors of strided columns, meet in banks.
  const double width = a.width, loads = 1.0 * a.used_rows() * a.row_loads();
  const double widened = word == 1 ? 0 : 1.0 * a.used_rows() * a.strip_columns() * width;
  const double conflicts = conv.nhwc ? (a.lanes() % 32 == 0 ? 1 : 2) : 4 / word * lesser(conv.stride_w, 4);
  const double weights = a.weights_in_registers() ? 0 : a.taps() * width * a.rows;
  constexpr double kSlower =
      2.5;  // copies' instructions than multiply-adds, which do not wait for each other
  work.multiply.instructions =
      warps * (a.taps() * width + turns * (a.products() + a.live() * outputs * width)) +
      frames * (warps * (30 + loads + widened + weights) +
                kSlower * copies * (a.copied() == a.word() && conv.x_type != ElementType::f32 ? 8 : 5));
  work.multiply.wavefronts = frames * warps * (loads * conflicts + weights * (conv.nhwc ? 1 : 0.25));
  work.multiply.waits = frames;
  const double stored = warps * a.frames * outputs * width / word;
  work.store.instructions = stored * (1 + word);
  work.store.wavefronts = stored;
  add_epilogue(work.store, conv, 32 * warps * a.frames * outputs * width);
  if (conv.residual) {
    work.store.instructions += stored * 2.5;
    work.store.l2_bytes += 128 * stored;
  }
  const bool whole = conv.nhwc ? a.chunks() == 1 || a.lanes() % 32 == 0 : a.sides() == 1;
  const double piece = conv.nhwc ? (whole ? 1.0 * a.tile_columns() * conv.c : a.channels)
                                 : 1.0 * a.tile_columns() * (whole ? a.tile_rows() : 1);
  store_in_pieces(work, outputs_of(conv) / word / work.tiles, piece / word);
  return work;
}

// ---- The search space ----

// Channels of a block: in NHWC few, half a warp of threads, a whole one, or more; in NCHW as many as there
// are threads for.
std::vector<int> channel_choices(const ConvExtents& conv, int width, int strips) {
  std::vector<int> choices;
  const auto add = [&](int some) {
    if (std::find(choices.begin(), choices.end(), some) == choices.end()) choices.push_back(some);
  };
  if (!conv.nhwc) {
    for (const int some : {1, 2, 4, 8, 16})
      if (some == 1 || (some * strips <= 512 && some <= 1LL * conv.n * conv.c)) add(some);
    return choices;
  }
  const int piece = 16 / size_of(conv.x_type);
  for (const int lanes : {8, 16, 32, 64, 128})
    if (const int some = lanes * width; some % piece == 0 && some < conv.c + some / 8) add(some);
  for (const int parts : {1, 2, 3})
    if (const int some = round_up(ceil_div(conv.c, parts), piece); some <= 256) add(some);
  return choices;
}

// Every valid config. `wasteful`: those with idle outputs and few threads too, for problems that have no
// other.
std::vector<Kernel> depthwise_3d_configs_of(const ConvExtents& conv, const Target& target,
                                            bool wasteful = false) {
  std::vector<Kernel> configs;
  const int word = Kernel::least(conv).word();
  const auto idle = [&](int tile, int extent) {
    return !wasteful && ceil_div(extent, tile) * tile > extent + greater(extent / 7, 1);
  };
  std::vector<int> widths = {1}, column_counts = {Kernel::kVector};
  if (conv.nhwc) column_counts = {1, 2, 3, 4, 5, 7, 8}, widths = {word};
  if (conv.nhwc && word > 1 && conv.taps() > 27) widths.push_back(1);
  std::vector<int> frame_counts = parts_of(conv.z);
  std::erase_if(frame_counts, [&](int some) { return some < lesser(conv.z, 4); });
  for (const int rows : {1, 2, 3, 4, 7, 8})
    for (const int columns : column_counts)
      for (const int width : widths) {
        if (rows > conv.p || idle(rows, conv.p) || rows * columns > 32) continue;
        if (conv.nhwc && (columns > conv.q || idle(columns, conv.q))) continue;
        if (!wasteful && rows * columns < 3 && conv.p * conv.q > 3) continue;
        Kernel strip = Kernel::least(conv);
        strip.rows = rows, strip.columns = columns, strip.width = width;
        if (strip.products() > Kernel::kMostProducts || strip.registers() > 255) continue;
        for (const int across : parts_of(ceil_div(conv.q, columns)))
          for (const int down : parts_of(ceil_div(conv.p, rows)))
            for (const int channels : channel_choices(conv, width, across * down)) {
              Kernel kernel = strip;
              kernel.across = across, kernel.down = down, kernel.channels = channels;
              if (!kernel.possible() || kernel.threads() > 512 || (!wasteful && kernel.threads() < 64))
                continue;
              if (conv.nhwc && idle(columns * across, conv.q)) continue;
              if (idle(rows * down, conv.p)) continue;
              for (const int frames : frame_counts)
                for (const int stages : {2, 3, 4}) {
                  kernel.frames = frames, kernel.stages = stages;
                  kernel.blocks = most_blocks(kernel, target);
                  if (kernel.blocks >= 1 && kernel.valid()) configs.push_back(kernel);
                }
            }
      }
  return configs.empty() && !wasteful ? depthwise_3d_configs_of(conv, target, true) : configs;
}

class DirectDepthwise3d final : public KernelAlgorithmOf<Kernel> {
 public:
  DirectDepthwise3d() : KernelAlgorithmOf("direct_depthwise_3d_sm80") {}

 private:
  bool has_depth() const override { return true; }
  // Every precision: fp32 products are at least as exact.
  Support takes(const Computed& a, const DeviceInfo& device) const override {
    const Abilities& abilities = once([] {
      Abilities of_all = kHalfAbilities;
      of_all.types.push_back(DType::f32);
      of_all.depth = true;
      return of_all;
    });
    if (Support support =
            first_refusal({needs_sm80(device), within(abilities, a), takes_depthwise(a), fits_extents(a)});
        !support)
      return support;
    if (!a.has_depth()) return Support::no("it is for three dimensions only");
    if (a.t > kMostTaps || a.r > kMostTaps || a.s > kMostTaps || a.t * a.r * a.s > kMostTaps)
      return Support::no(fmt::format("a filter of {}x{}x{} has more than {} taps", a.t, a.r, a.s, kMostTaps));
    return Support::yes();
  }

  bool has_configs(const Computed& a, const DeviceInfo& device) const override {
    return !depthwise_3d_configs_of(extents_of(a), target_of(device)).empty();
  }
  std::string why_none(const ConvProblem& a, const DeviceInfo& device) const override {
    const Kernel least = Kernel::least(extents_of(a));
    return fmt::format(
        "its least config needs {} bytes of shared memory (of {}), {} products in straight code (of {}), {} "
        "frames of sums (of {}) and a window of {}x{} (of {})",
        least.smem_bytes(), target_of(device).smem_per_block, least.products(), Kernel::kMostProducts,
        least.live(), Kernel::kMostLive, least.strip_rows(), least.strip_columns(), Kernel::kMostWindow);
  }
  std::vector<Kernel> configs(const Computed& a, const DeviceInfo& device) const override {
    std::vector<Ranked<Kernel>> ranked;
    const Target target = target_of(device);
    for (const Kernel& kernel : depthwise_3d_configs_of(extents_of(a), target)) {
      ranked.push_back(timed(kernel, a, target, static_cast<double>(kernel.all_blocks())));
      ranked.back().cost *= 1 + kProductShare * kernel.products();
    }
    return best_of(std::move(ranked), kMostCandidates, kHopeless);
  }

  Support takes_kernel(const Kernel& kernel, const DeviceInfo& device) const override {
    if (!kernel.possible())
      return Support::no(fmt::format(
          "in NHWC channels are a multiple of {}, and width is 1 or {}; in NCHW columns are {} and "
          "width is 1; with at most {} threads",
          16 / size_of(kernel.conv.x_type), kernel.word(), Kernel::kVector, Kernel::kMostThreads));
    const Target target = target_of(device);
    if (kernel.valid() && kernel.smem_bytes() <= target.smem_per_block && stays_resident(kernel, target))
      return Support::yes();
    return Support::no(fmt::format("{} products (this: {}), {}", Kernel::kMostProducts, kernel.products(),
                                   needs_in_words(kernel, target)));
  }
  LaunchPlan launch(const Kernel& kernel, const DeviceInfo& device) const override {
    return plan_of(kernel, device, {static_cast<unsigned>(kernel.all_blocks())}, kEpilogueArguments);
  }
  TileWork counted(const Kernel& kernel) const override { return work_of(kernel); }
};

}  // namespace

const Algorithm& direct_depthwise_3d_sm80() {
  return once([] { return DirectDepthwise3d(); });
}

}  // namespace convtune::cuda
