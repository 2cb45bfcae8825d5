// Rule R6 for a Triton file: the configs of a new list run in processes of their own, and the best neighbour
// is held against the original.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "convtune/refine.h"
#include "micro_tuning.h"
#include "triton_run.h"

namespace convtune {

struct RefineContest {
  std::vector<MeasuredConfig> measured;  // as the list; config and reason are the caller's to fill in
  std::size_t best = 0;                  // of the list: the neighbour that was held against the original
  bool accepted = false, interrupted = false;
  std::string verdict;  // R6's, without its name
  std::string place, capability;
};

// `list`: the original first. `spec`: of the original; the others differ in their stage alone. Throws what
// TritonRun::wait() does, and Error{invalid_argument} where the original itself fails.
RefineContest refine_contest(const TritonRunSpec& spec, const std::vector<StageList::Entry>& list,
                             const RefineMeasureOptions& options);

}  // namespace convtune
