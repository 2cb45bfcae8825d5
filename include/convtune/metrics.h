// Reads a profiler's measurements of kernels, in every form that people have them in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convtune/language.h"

namespace convtune {

// One kernel's metrics by the names that Nsight Compute gives them, "launch__grid_size".
struct KernelMetrics {
  std::string kernel;
  std::vector<std::pair<std::string, double>> values;  // times in ns, sizes in bytes, shares in percent
  std::vector<std::string> notes = {};                 // how a number was read that could be read otherwise

  std::optional<double> find(std::string_view metric) const;
};

// Every form that Nsight Compute's numbers are found in: JSON, {"kernel": {"metric": number or {"value":,
// "unit":}}}, with a kernel as a list of launches, or a list of objects that name their kernel, alone or
// under "kernels"; what `ncu --csv` prints, of the raw page or of the details page; and the details page as
// text. The program's own output may stand around those. Where a kernel was launched several times, the
// launch of median time counts. Throws Error{invalid_argument} that names the kernel and the metric, or the
// place where the text stops to be what it began as; and, with the line for ncu, where no metric is one that
// analyze() reads.
std::vector<KernelMetrics> parse_metrics(std::string_view text);
std::vector<KernelMetrics> load_metrics(const std::string& path);  // Error{io} too; messages name the file

// Returns the metrics as JSON text, every number as it reads back. Throws Error{invalid_argument} for what
// parse_metrics() refuses.
std::string to_json(const std::vector<KernelMetrics>& kernels);

}  // namespace convtune
