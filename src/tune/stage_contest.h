// The measurements of a search's last stage (rule R6): the best of a winner's few neighbours is picked in
// turns, and then has to beat the winner in contests of its own. The samples that picked it decide nothing:
// the best of several lucky ones is lucky.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convtune/contest.h"
#include "measure/measure.h"

namespace convtune {

struct StageContest {
  std::vector<Measurement> in_turns;  // as the samplers
  std::size_t best = 0;               // the neighbour that was picked, of the samplers
  bool accepted = false, cancelled = false;
  double gain = 0;                      // in the last contest that was held
  std::string reason;                   // with the numbers
  std::vector<ContestResult> contests;  // that were held
};

// Why a contest at this time a run is more than the stage may take; nothing where it is not.
std::string too_slow_for_contest(double time_us);

// `samplers`: the original's, then one or more neighbours'. The neighbour is accepted where two contests
// prove a gain of at least `min_gain` and the times of neither side scatter. `before_contest` is called
// before each of the two with the neighbour's place: where the samplers' state is to be fresh, it is made so
// there. `late`: from then on each of the three measurements ends at its fewest rounds. `witness`: of the
// sample that was taken last; none: nobody knows.
StageContest stage_contest(const std::vector<std::function<double()>>& samplers, double min_gain,
                           const std::function<bool()>& cancelled = {},
                           const std::function<void(std::size_t)>& before_contest = {},
                           const std::function<bool()>& late = {},
                           const std::function<Witness()>& witness = {});

}  // namespace convtune
