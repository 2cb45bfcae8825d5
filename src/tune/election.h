// Who challenges whom in a search's contest: the fastest of the best few, ours and the vendor's, measured
// again in turns, so that a lucky sample wins no place. Called once by tune().
#pragma once

#include <vector>

#include "tune/search_context.h"

namespace convtune {

constexpr std::size_t kFinalists = 8;  // finalists of ours

struct Election {
  const Contender* incumbent = nullptr;  // for the vendor's; null: none runs
  Contender finalist, runner_up;         // of ours; no algorithm: there is none
};

// `vendors` have run or failed. `ours` have times, and are built here where they are not. The times of those
// that are measured again are replaced; `ours` is sorted.
Election elect(std::vector<Contender>& vendors, std::vector<Contender>& ours, const SearchContext& with);

bool faster(const Contender* a, const Contender* b);

}  // namespace convtune
