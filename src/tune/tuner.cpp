// Defines tune(): checks the request, and asks the records before a search begins.
#include <fmt/format.h>

#include "plan/algorithms.h"
#include "plan/planner.h"
#include "tune/tune_on.h"
#include "tune/tuning_record.h"

namespace convtune {
namespace {

// Whatever only the reference runs is not recorded: a later version may have something to choose from.
void check_choice(const ConvProblem& problem, const DeviceInfo& device) {
  std::string reasons;
  for (const Algorithm* algorithm : algorithms(device.device.kind)) {
    if (algorithm->reference()) continue;
    const Support support = algorithm->supports(problem, device);
    if (support) return;
    reasons += fmt::format("\n  {}: {}", algorithm->name(), support.reason());
  }
  throw Error(ErrorKind::unsupported, fmt::format("there is nothing to tune: no fast algorithm runs {}:{}",
                                                  to_string(problem), reasons));
}

}  // namespace

TuningReport tune(const ConvProblem& problem, Device device, const TuneOptions& options) {
  Backend& on = backend(device);
  const ConvProblem resolved = resolve(problem, on);
  if (resolved.n == 0)
    throw Error(ErrorKind::invalid_argument, "a batch of 0 has nothing to tune: " + to_string(resolved));
  if (!(options.min_gain >= 0 && options.min_gain < 1))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("min_gain must lie in [0, 1), not {}", options.min_gain));
  constexpr double kWeek = 7 * 86400;
  if (!(options.budget_seconds >= 0 && options.budget_seconds <= kWeek))  // so written, it refuses NaN too
    throw Error(ErrorKind::invalid_argument,
                fmt::format("budget_seconds must lie in [0, {}], not {}", kWeek, options.budget_seconds));
  if (options.budget_trials < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("budget_trials must be 0 or more, not {}", options.budget_trials));
  check_choice(resolved, on.info());
  std::optional<Record> record;
  if (!options.retune) record = find_record(resolved, on.info());
  if (record && record->proven()) return report_of(*record, resolved, on.info());
  return tune_on(on, algorithms(device.kind), resolved, options, {}, record);
}

}  // namespace convtune
