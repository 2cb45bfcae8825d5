// tune() on any backend, with any algorithms and by any clock: for its test, which simulates them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "contract/backend.h"
#include "convtune/database.h"
#include "convtune/tuner.h"

namespace convtune {

// `resolved`: its precision is. `now_seconds`: see Budget. `unproven`: the record whose contest goes on, if
// any.
TuningReport tune_on(Backend& backend, const std::vector<const Algorithm*>& algorithms,
                     const ConvProblem& resolved, const TuneOptions& options,
                     const std::function<double()>& now_seconds = {},
                     const std::optional<Record>& unproven = {});

}  // namespace convtune
