// Limits and rankings that algorithms of the CPU share. Plain arithmetic; cycles are a core's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "convtune/problem.h"
#include "cpu/model/cpu_work.h"
#include "cpu/model/store_work.h"
#include "cpu/tile/line_blocks.h"

namespace convtune::cpu {

// Cycles over all threads as time, so that algorithms' estimates can be compared. Only their ratios count,
// and a clock of 3 GHz is near any processor's.
inline double microseconds(double cycles, const DeviceInfo& on) {
  return cycles / (3000.0 * on.units);
}

// A thread's working memory may not grow past this: offsets in it are 32 bits, and a window far larger than
// any cache has lost its purpose.
constexpr double kMaxScratchBytes = 256.0 * 1024 * 1024;

// Moves the first `head` of ranked configs of which no more than `most` are of one kind to the front, and
// returns how many these are: configs of one kind are estimated alike and are wrong alike. The others keep
// their order.
template <class Ranked, class Kind>
std::size_t mix_kinds(std::vector<Ranked>& ranked, std::size_t head, std::size_t most, const Kind& kind) {
  std::map<decltype(kind(ranked.front().config)), std::size_t> counts;
  std::vector<Ranked> first, others;
  for (const Ranked& one : ranked) {
    const bool joins = first.size() < head && counts[kind(one.config)]++ < most;
    (joins ? first : others).push_back(one);
  }
  ranked = first;
  ranked.insert(ranked.end(), others.begin(), others.end());
  return first.size();
}

// Keeps `most` of ranked configs, no more than half of them of one value of `stream` where there are others:
// stores cost differently on each processor.
template <class Ranked>
void keep_mixed(std::vector<Ranked>& ranked, std::size_t most) {
  mix_kinds(ranked, most, (most + 1) / 2, [](const auto& config) { return config.stream; });
  ranked.resize(std::min(ranked.size(), most));
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.estimate < b.estimate; });
}

}  // namespace convtune::cpu
