// Defines the samples of the tests of refining: the sample with its profile, and options without Triton.
#pragma once

#include <string>
#include <vector>

#include "convtune/refine.h"
#include "refusal.h"

namespace convtune {

inline const std::string kFolder = CONVTUNE_SOURCE_DIR "/tests/refine/";
inline const Target kAda = find_target("rtx4090");

inline std::string sample() {
  return load_source(kFolder + "conv.py");
}
inline std::vector<KernelMetrics> profile(double grid, const std::string& kernel = "conv_kernel") {
  return {
      {kernel, {{"launch__grid_size", grid}, {"sm__warps_active.avg.pct_of_peak_sustained_active", 33.05}}}};
}
// Without Triton, which may be there or not.
inline RefineOptions plain() {
  RefineOptions options;
  options.compile = options.import_file = false;
  return options;
}
inline std::string refused(const std::string& source, const RefineOptions& options = plain(),
                           double grid = 48400) {
  return refusal([&] { refine(source, profile(grid), kAda, options); });
}

}  // namespace convtune
