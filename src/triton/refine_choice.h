// Which kernels of a Triton file are refined. Called once by refine().
#pragma once

#include <vector>

#include "convtune/refine.h"
#include "triton/triton_file.h"

namespace convtune {

// The kernel that the options name, else those that the metrics name, else the file's with a list. Throws
// Error{invalid_argument} that lists the file's kernels where it is none of them, or which of several is
// meant is open.
std::vector<const TritonKernel*> chosen_kernels(const TritonFile& file,
                                                const std::vector<KernelMetrics>& metrics,
                                                const RefineOptions& options);

// Returns the kernel's profile; null if there is none.
const KernelMetrics* metrics_of(const TritonKernel& kernel, const std::vector<KernelMetrics>& metrics);

}  // namespace convtune
