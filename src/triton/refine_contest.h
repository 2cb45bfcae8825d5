// Rule R6 for a Triton file: the configs of a new list run in processes of their own, and the best neighbour
// is held against the original, and against what the old list comes to on this GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "contract/micro_tuning.h"
#include "convtune/contest.h"
#include "convtune/refine.h"
#include "triton/triton_file.h"
#include "triton/triton_run.h"

namespace convtune {

struct RefineContest {
  std::vector<MeasuredConfig> measured;  // as the list, and then the old list's own winner if it is another
  std::size_t best = 0;                  // of the list: the neighbour that was held against the original
  bool accepted = false, interrupted = false;
  std::string verdict;  // R6's, without its name
  std::string place, capability;
  std::string note;  // about the old list's own winner
  std::vector<HeldContest> contests;
};

struct RefineContestQuestion {
  TritonRunSpec spec;                         // its source is what each run sets
  const std::string& source;                  // the file as it is
  const std::vector<StageList::Entry>& list;  // the new one, the original first
  const TritonConfig& original;
  const std::vector<TritonConfig>& listed;                    // the old one, as far as it is known
  bool has_list = true;                                       // whether there is an old list at all
  std::function<std::string(const TritonConfig&)> source_of;  // the file with this config alone
  double min_gain = 0.02;
  const std::function<void(const std::string&)>& progress;
  const std::atomic<bool>* cancel = nullptr;
  std::size_t fewest = 3;  // R4
};

// Throws what TritonRun::wait() does, and Error{invalid_argument} where the original itself fails.
RefineContest refine_contest(const RefineContestQuestion& question);

}  // namespace convtune
