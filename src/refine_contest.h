// Rule R6 for a Triton file: the configs of a new list run in processes of their own, and the best neighbour
// is held against the original, and against what the old list comes to on this GPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "convtune/refine.h"
#include "micro_tuning.h"
#include "triton_run.h"
#include "triton_source.h"

namespace convtune {

struct RefineContest {
  std::vector<MeasuredConfig> measured;  // as the list, and then the old list's own winner if it is another
  std::size_t best = 0;                  // of the list: the neighbour that was held against the original
  bool accepted = false, interrupted = false;
  std::string verdict;  // R6's, without its name
  std::string place, capability;
  std::string note;  // about the old list's own winner
};

// `list`: the new one, the original first. `listed`: the old one. `spec`: of the original; the others of the
// new list differ in their stage alone. Throws what TritonRun::wait() does, and Error{invalid_argument} where
// the original itself fails.
RefineContest refine_contest(const TritonRunSpec& spec, const std::vector<StageList::Entry>& list,
                             const std::vector<TritonConfig>& listed, const RefineMeasureOptions& options);

}  // namespace convtune
