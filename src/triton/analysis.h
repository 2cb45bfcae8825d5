// What other folders ask of an analysis beside its findings.
#pragma once

#include "contract/micro_tuning.h"
#include "profile/metrics.h"
#include "triton/triton_file.h"

namespace convtune {

OccupancyEvidence evidence_of(const KnownMetrics& metrics);

// analyze() of a file that has been read already, in place of the options' source.
std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options, TritonFile& file);

}  // namespace convtune
