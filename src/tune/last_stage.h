// The last stage of a search: the winner's few neighbours, by the rules of micro_tuning.h, tried as any
// candidate is, and the best of them against the winner. Called once by tune().
#pragma once

#include <optional>

#include "contract/micro_tuning.h"
#include "convtune/target.h"
#include "convtune/tuner.h"
#include "tune/search_context.h"

namespace convtune {

// R1 to R5 for a config of an algorithm, whose StageView is `view`. `target`: where the algorithm leaves R1
// to the occupancy of a GPU.
StageList neighbours_of(const StageView& view, const Algorithm& algorithm, const Config& config,
                        const ConvProblem& problem, const DeviceInfo& device,
                        const std::optional<Target>& target);

struct LastStage {
  MicroTuning report;
  std::optional<Contender> accepted;  // in the winner's place
};

// `winner` is built and checked. What comes of its neighbours is kept in the trials. Where the budget has no
// time for what it is expected to take, the neighbours are listed and not tried, and R6's verdict says so.
LastStage last_stage(const Contender& winner, const SearchContext& with);

}  // namespace convtune
