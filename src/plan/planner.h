// Which algorithm, which config, and why: records first, then the algorithms' own guesses.
#pragma once

#include <optional>

#include "contract/backend.h"
#include "convtune/database.h"

namespace convtune {

// The problem as the device will run it: validated, Precision::automatic replaced.
Conv2dProblem resolve(const Conv2dProblem& problem, const Backend& backend);

// The record that answers this problem on this device, if one still holds: its algorithm exists,
// accepts the config and has the same source hash.
std::optional<Record> find_record(const Conv2dProblem& resolved, const DeviceInfo& device);

// Never measures. Throws Error{unsupported} with every algorithm's reason when none can do it.
Plan choose(const Conv2dProblem& resolved, const DeviceInfo& device);
// The same as if there were no records. `ours_only`: of the algorithms that have a source.
Plan first_guess(const Conv2dProblem& resolved, const DeviceInfo& device, bool ours_only = false);

}  // namespace convtune
