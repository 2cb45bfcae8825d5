// Which config of a list was profiled: the one that is named, else the one whose launch the metrics are of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/refine.h"
#include "profile/known_metrics.h"
#include "triton/triton_file.h"

namespace convtune {

struct Original {
  TritonConfig config;
  std::vector<TritonConfig> fitting;   // if several fit what was profiled, and none is taken
  std::string why;                     // not empty: which of `fitting` was profiled is not known
  bool none_fits = false;              // no config launches the grid that was profiled
  bool grid_is_open = false;           // its grid is not wholly worked out: more of its sizes would tell more
  std::optional<ConvProblem> problem;  // what was profiled, as far as it is known
  std::vector<std::string> notes;      // how it was found
};

struct OriginalQuestion {
  TritonFile& file;
  const TritonKernel& kernel;
  const std::vector<TritonConfig>& configs;  // for its list
  const std::string& why;                    // not empty: why there are none
  const KnownMetrics& metrics;
  const Target& target;
  const RefineOptions& options;
  const StageParameters& parameters;
};
// Throws Error{invalid_argument} where it cannot be told and RefineOptions::several does not say what then.
Original find_original(const OriginalQuestion& question);
// For several that fit: the sentence that says so, lists them, and says how to name one.
std::string unknown_original(const TritonKernel& kernel, const Original& original);

// Returns whether the number of active warps that was profiled is possible with blocks of this config, given
// what was profiled of them and what the compiler made of the config.
bool can_be_active(const TritonConfig& config, const KnownMetrics& profiled, const CompiledConfig& made,
                   const Target& target);

// The config among those that a grid was launched by, for an analysis; empty, with `why`, where it cannot be
// told.
std::vector<TritonConfig> profiled_configs(TritonFile& file, const TritonKernel& kernel, std::int64_t grid,
                                           const std::vector<ConvProblem>& problems,
                                           const std::vector<std::pair<std::string, std::string>>& let,
                                           std::optional<ConvProblem>& problem, std::string& why);

// Tells whether the words, "BLOCK_M" "32", are this config's.
bool is_config(const TritonConfig& config, const std::vector<std::pair<std::string, std::string>>& words);

// Tells whether a profiler's name is this kernel's: Triton adds "_0d1d2de" to some.
bool is_kernel_name(std::string_view profiled, std::string_view kernel);

}  // namespace convtune
