#include "cuda/algorithms/direct_stem_sm80/candidates.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "cuda/launch/extents.h"
#include "model/capability_facts.h"

namespace convtune::cuda {
namespace {

// For every row pitch modulo 32.
std::array<double, 32> wavefronts(DirectStemSm80 kernel) {
  std::array<double, 32> result{};
  for (int pitch = 0; pitch < 32; ++pitch) {
    kernel.row_pitch = (1 << 17) + pitch;  // far apart, as rows are
    result[static_cast<std::size_t>(pitch)] = direct_stem_sm80_wavefronts(kernel);
  }
  return result;
}

// Ways to divide filters among warps and blocks that leave no 16 of them idle for nothing.
std::vector<std::pair<int, int>> filter_choices(int k) {
  const int needed = (k + 15) / 16 * 16;
  std::vector<std::pair<int, int>> choices;
  for (const int warp_filters : {96, 64, 48, 32, 16})
    for (const int warps : {1, 2, 4})
      if (const int filters = warp_filters * warps; filters <= needed) {
        const int blocks = (k + filters - 1) / filters;
        if (blocks * filters <= needed + needed / 8) choices.emplace_back(warp_filters, warps);
      }
  return choices;
}

constexpr int kMostBodyStages = 10;  // with 15 of them, each behind a barrier, ptxas spilled
constexpr int kMostRegisters = 253;  // as registers() counts: with 254, 3 of 28 spilled

// K-steps of a stage, as they divide the loop's body, and stages.
std::vector<std::pair<int, int>> rings_of(DirectStemSm80 kernel) {
  std::vector<std::pair<int, int>> rings;
  for (const auto& [steps, stages] : {std::pair{2, 3}, {4, 2}, {4, 3}, {8, 2}}) {
    kernel.steps = steps, kernel.stages = stages;
    if (kernel.resident()) continue;
    const std::pair ring = {kernel.stage_floats() / kernel.step_floats(), stages};
    if (std::find(rings.begin(), rings.end(), ring) == rings.end()) rings.push_back(ring);
  }
  return rings;
}

// The first `most`. `wasteful`: those with idle pixels, few warps and few sums too.
std::vector<DirectStemSm80> configs_of(const DirectStemPlanned& planned, const Target& target, bool wasteful,
                                       std::size_t most = std::numeric_limits<std::size_t>::max()) {
  const ConvExtents& conv = planned.plain().conv;
  const int spare = wasteful ? 0 : capability_facts(target.capability).spare_registers;
  const int tiles = (conv.q + 7) / 8;  // per row
  std::vector<DirectStemSm80> configs;
  const auto add = [&](const DirectStemSm80& config) {
    const int spare_registers = !config.staged && config.warp_filters >= 64 ? spare : 0;
    DirectStemSm80 kernel = planned.laid_out(config);
    if (kernel.body_stages() > kMostBodyStages) return;
    for (kernel.blocks = 6; kernel.blocks >= 1; --kernel.blocks) {
      if (direct_stem_sm80_fits(kernel, target) &&
          kernel.registers() + spare_registers <= std::min(kernel.register_limit(), kMostRegisters)) {
        configs.push_back(kernel);
        break;
      }
    }
  };
  const int k_steps = planned.plain().k_steps();
  for (const auto& [warp_filters, filter_warps] : filter_choices(conv.k))
    for (int warp_columns = 1; warp_columns <= 8; ++warp_columns)
      for (const int column_warps : {1, 2, 4, 8}) {
        const int columns = warp_columns * column_warps;
        const int splits = (tiles + columns - 1) / columns;
        if (!wasteful && splits * columns > tiles + tiles / 7) continue;  // idle pixels
        for (const int warp_rows : {1, 2, 4})
          for (const int row_warps : {1, 2, 4, 8}) {
            const int warps = filter_warps * row_warps * column_warps, band = warp_rows * row_warps;
            const int sums = warp_filters / 4 * warp_rows * warp_columns;
            if (warps > 8 || (!wasteful && (warps < 4 || sums < 16)) || (band > 1 && band > conv.p)) continue;
            DirectStemSm80 config = planned.plain();
            config.warp_filters = warp_filters, config.warp_columns = warp_columns,
            config.warp_rows = warp_rows;
            config.filter_warps = filter_warps, config.row_warps = row_warps,
            config.column_warps = column_warps;
            for (const int staged : {1, 0}) {
              if (staged && splits > 1) continue;
              if (configs.size() >= most) return configs;
              config.staged = staged, config.stagger = 100;
              config.steps = k_steps, config.stages = 1;
              add(config);
              for (const auto& [steps, stages] : rings_of(planned.laid_out(config))) {
                config.steps = steps, config.stages = stages;
                add(config);
              }
            }
          }
      }
  return configs;
}

}  // namespace

DirectStemPlanned::DirectStemPlanned(const ConvProblem& problem) {
  kernel_.conv = extents_of(problem);
  // If pixels share no column their distance is free.
  const int least = kernel_.apart_columns() ? kernel_.conv.s : kernel_.conv.stride_w;
  const int most = kernel_.apart_columns() ? least + 8 : least;
  wavefronts_.fill(1e30);
  for (int pitch = least; pitch <= most; ++pitch) {
    DirectStemSm80 tried = kernel_;
    tried.pixel_pitch = pitch;
    const auto found = wavefronts(tried);
    if (*std::min_element(found.begin(), found.end()) >=
        *std::min_element(wavefronts_.begin(), wavefronts_.end()) - 0.1)
      continue;
    kernel_.pixel_pitch = pitch;
    wavefronts_ = found;
  }
}

DirectStemSm80 DirectStemPlanned::laid_out(DirectStemSm80 kernel) const {
  // Wide loads need rows that begin at multiples: not where that costs more in bank conflicts.
  double best = 1e30;
  if (!kernel.possible()) return kernel;
  for (const int width : {1, 2, 4}) {
    DirectStemSm80 tried = kernel;
    if (!tried.loads(width)) continue;
    tried.load_width = width;
    const int least = tried.window_columns();
    int pitch = least;
    for (int other = least; other < least + 32; other += width)
      if (wavefronts_at(other) < wavefronts_at(pitch) - 0.01) pitch = other;
    if (wavefronts_at(pitch) > best * 1.05) continue;
    best = std::min(best, wavefronts_at(pitch));
    tried.row_pitch = pitch;
    kernel = tried;
  }
  return kernel;
}

bool direct_stem_sm80_fits(const DirectStemSm80& kernel, const Target& target) {
  return kernel.valid() && kernel.smem_bytes() <= smem_per_block_anywhere() &&
         kernel.blocks <= occupancy(target, {kernel.threads(), 0, kernel.smem_bytes()}).blocks;
}

std::vector<DirectStemSm80> direct_stem_sm80_configs(const DirectStemPlanned& planned, const Target& target) {
  std::vector<DirectStemSm80> configs = configs_of(planned, target, false);
  return configs.empty() ? configs_of(planned, target, true) : configs;
}

bool direct_stem_sm80_has_configs(const DirectStemPlanned& planned, const Target& target) {
  return !configs_of(planned, target, false, 1).empty() || !configs_of(planned, target, true, 1).empty();
}

double direct_stem_sm80_wavefronts(const DirectStemSm80& kernel) {
  std::array<int, 4> groups{};
  for (int group = 0; group < kernel.groups(); ++group)
    ++groups[static_cast<std::size_t>(kernel.pattern(group))];
  double sum = 0;
  for (int pattern = 0; pattern < 4; ++pattern) {
    std::array<std::set<int>, 32> words;
    for (int lane = 0; lane < 32; ++lane) {
      const int word = lane / 4 * kernel.pixel_pitch + kernel.thread_offset(pattern, lane % 4);
      words[static_cast<std::size_t>(word % 32)].insert(word);
    }
    std::size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    sum += static_cast<double>(most) * groups[static_cast<std::size_t>(pattern)] / kernel.groups();
  }
  return sum;
}

}  // namespace convtune::cuda
