// Limits and rankings that algorithms of the CPU share. Plain arithmetic; cycles are a core's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// Keeps the first of ranked configs, no more than half of them of one value of `stream` where there are
// others: stores cost differently on each processor.
template <class Ranked>
void keep_mixed(std::vector<Ranked>& ranked, std::size_t most) {
  std::size_t of_stream[3] = {};
  std::stable_partition(ranked.begin(), ranked.end(),
                        [&](const Ranked& one) { return of_stream[one.config.stream]++ < (most + 1) / 2; });
  ranked.resize(std::min(ranked.size(), most));
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.estimate < b.estimate; });
}

}  // namespace convtune::cpu
