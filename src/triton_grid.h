// How many blocks a config launches: the wrapper's own arithmetic, worked out for a problem without running
// it. So a profile's grid says which config of a list was profiled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convtune/problem.h"
#include "triton_source.h"

namespace convtune {

struct TritonGrid {
  std::optional<std::int64_t> blocks;
  std::string why_not;  // "line 12: 'M_total' is not known"
};
TritonGrid grid_of(const TritonSource& source, const TritonConfig& config, const Conv2dProblem& problem);

// The built-in cases whose convolution is a literal nn.Conv2d of the file.
std::vector<Conv2dProblem> cases_of(const TritonSource& source);

// The configs whose grid is the profiled one, for one of the problems. Different configs of the same blocks
// launch the same grid.
struct Profiled {
  std::vector<const TritonConfig*> configs;
  Conv2dProblem problem;  // that fits, if any does
  std::string why_none;
};
Profiled profiled_configs(const TritonSource& source, std::int64_t grid,
                          const std::vector<Conv2dProblem>& problems);

}  // namespace convtune
