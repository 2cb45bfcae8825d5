// Nsight Compute: how it is asked for the metrics that convtune reads, and what its answer says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convtune/metrics.h"

namespace convtune {

// The file of `ncu`: on PATH, else in a CUDA toolkit's folder. Throws Error{unsupported} that says where it
// was looked for.
std::string find_ncu();

// `command` as ncu runs it: what the table of metrics asks for, of every kernel, as lines of CSV.
std::vector<std::string> ncu_command(const std::string& ncu, const std::vector<std::string>& command);

struct NcuAnswer {
  std::vector<KernelMetrics> launches;  // in order; a metric that ncu has no number for is left out
  std::vector<std::string> messages;    // ncu's own: "ERROR: ..."
  std::vector<std::string> others;      // lines before its table that are not ncu's
  bool forbidden = false;               // this user may not read the GPU's counters
};

// Runs ncu_command() and returns its standard output. Throws Error{invalid_argument} that names kernel and
// metric, or the line, of what is no such table.
NcuAnswer parse_ncu(std::string_view output);

// Which of the launches is a plan's: of the kernel that is named as its algorithm, else, said in `note`, of
// the kernel that takes longest and packs nothing; of several launches of it the one of median time. Throws
// Error{invalid_argument} where there is none.
const KernelMetrics& launch_of(const std::string& algorithm, const std::vector<KernelMetrics>& launches,
                               std::string& note);

}  // namespace convtune
