// Evidence of occupancy in a profile, and readings that cannot be of one launch on one GPU: nothing follows
// from those.
#pragma once

#include <cstdint>
#include <string>

#include "contract/micro_tuning.h"
#include "convtune/target.h"
#include "profile/known_metrics.h"

namespace convtune {

OccupancyEvidence evidence_of(const KnownMetrics& metrics);

// Names the readings that contradict each other; empty if none do. `warps`: of a block; 0 or less: not known.
std::string contradiction(const KnownMetrics& metrics, std::int64_t warps, const Target& target);

}  // namespace convtune
