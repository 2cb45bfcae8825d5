// Turns a search's findings into a record, and a record into the report of a search that measured nothing.
#pragma once

#include "convtune/database.h"
#include "convtune/tuner.h"

namespace convtune {

// Without the runner-up; dated now. `row` has its plan, and its first provider is what the plan names.
Record record_of(const Comparison& row, const std::string& kernel_hash);
TuningReport report_of(const Record& record, const ConvProblem& problem, const DeviceInfo& device);

}  // namespace convtune
