// tune() on any backend, with any algorithms and by any clock: for its test, which simulates them.
#pragma once

#include <functional>
#include <vector>

#include "backend.h"
#include "convtune/tuner.h"

namespace convtune {

// `resolved`: its precision is. `now_seconds`: see Budget.
TuningReport tune_on(Backend& backend, const std::vector<const Algorithm*>& algorithms,
                     const Conv2dProblem& resolved, const TuneOptions& options,
                     const std::function<double()>& now_seconds = {});

}  // namespace convtune
