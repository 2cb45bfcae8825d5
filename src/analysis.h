// What the rooms above ask of an analysis beside its findings.
#pragma once

#include "metrics.h"
#include "micro_tuning.h"

namespace convtune {

OccupancyEvidence evidence_of(const KnownMetrics& metrics);

}  // namespace convtune
