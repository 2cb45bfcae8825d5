// A stage's own rules applied to one kernel: which values remain, which are asked for, and what could not be
// judged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contract/micro_tuning.h"
#include "convtune/refine.h"
#include "profile/known_metrics.h"

namespace convtune {

// Facts that conditions are about, as far as they are known of the kernel as it was profiled.
struct StageFacts {
  std::optional<double> registers = std::nullopt;  // per thread
  std::optional<bool> spills = std::nullopt, limited_by_registers = std::nullopt,
                      compute_bound = std::nullopt;
  std::optional<double> loads = std::nullopt;        // distinct pointers that it loads from
  std::optional<double> stall_share = std::nullopt;  // of memory, of a warp's cycles
};
StageFacts facts_of(const KnownMetrics& metrics);

struct AppliedStage {
  StageParameters parameters;
  std::vector<std::string> notes;  // conditions that hold, and those that cannot be judged
};
AppliedStage apply_stage(const RefineStage& stage, const StageConfig& original, const StageFacts& facts);

}  // namespace convtune
