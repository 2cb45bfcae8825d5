// Analyses of a file that has been read already.
#pragma once

#include "convtune/refine.h"
#include "triton/readings.h"
#include "triton/triton_file.h"

namespace convtune {

// analyze() of a file that has been read already, in place of the options' source.
std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options, TritonFile& file);

}  // namespace convtune
