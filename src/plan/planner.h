// Which algorithm, which config, and why: records first, then the algorithms' own guesses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contract/backend.h"
#include "convtune/database.h"

namespace convtune {

// Resolves Precision::automatic where it means `of_f32` for f32 tensors: products of half-precision
// ones are exact in their own precision, and fastest so.
Precision automatic_precision(const ConvProblem& problem, Precision of_f32);

// The problem as the device will run it: validated, Precision::automatic replaced.
ConvProblem resolve(const ConvProblem& problem, const Backend& backend);
// Resolves a problem for a device that need not be here, where "auto" means `of_f32` for f32 tensors.
ConvProblem resolve(const ConvProblem& problem, Precision of_f32);

// The record that answers this problem on this device, if one still holds: its algorithm exists,
// accepts the config and has the same source hash.
std::optional<Record> find_record(const ConvProblem& resolved, const DeviceInfo& device);

// Tells whether one row of the table would build the record's config for `problem` today.
bool still_holds(const Record& record, const ConvProblem& problem, const DeviceInfo& device);

// A plan's why, or an answer's reason, and what the algorithm does beside its kernel for this problem.
std::string with_remark(std::string why, const Algorithm& algorithm, const ConvProblem& resolved);

// Never measures. Throws Error{unsupported} with every algorithm's reason when none can do it.
Plan choose(const ConvProblem& resolved, const DeviceInfo& device);
// The best of the algorithms that have a source, whatever the vendor's library has: for callers who cannot
// run that one, or have it already. Throws as choose does.
Plan choose_ours(const ConvProblem& resolved, const DeviceInfo& device);
// One of convtune's own algorithms that a record proves, of this batch or another. Throws Error{unsupported}
// where there is none, or the record keeps the vendor's.
Plan choose_recorded(const ConvProblem& resolved, const DeviceInfo& device, bool this_batch = false);
// As choose, by a kernel that runs every smaller batch, too, where it can be compiled so (kMostImages).
Plan choose_any_batch(const ConvProblem& resolved, const DeviceInfo& device);
// Whatever choose answers where there are no records. `ours_only`: of the algorithms that have a source.
Plan first_guess(const ConvProblem& resolved, const DeviceInfo& device, bool ours_only = false);
// Answers as first_guess(), from a table of the caller's.
Plan first_guess_among(const std::vector<const Algorithm*>& table, const ConvProblem& resolved,
                       const DeviceInfo& device, bool ours_only = false);

}  // namespace convtune
