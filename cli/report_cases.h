// Walks over the cases of tune and bench, and prints the table as it grows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convtune/device.h"
#include "convtune/problem.h"
#include "convtune/report.h"
#include "options.h"
#include "progress.h"
#include "report_files.h"

namespace convtune::cli {

// Holds the result of measuring a case: a row, or nothing when Ctrl-C stopped it before an answer.
struct CaseResult {
  std::optional<ReportRow> row;
  std::string kept;  // if stopped: what of the work is kept, for the last line
};

// The place of a case among those that are measured.
struct CasePlace {
  std::string label;        // starts its progress lines
  std::size_t behind = 0;   // cases that follow
  double mean_seconds = 0;  // that a case has taken so far; 0: it is the first

  // Seconds that the cases behind will take: as those before, or, of the first, as `budget` says.
  double seconds_behind(double budget) const;
};

// Measures one case.
using MeasureCase = std::function<CaseResult(const ConvProblem&, const CasePlace&, ProgressLine&)>;

// Measures case after case, prints each as it is done and writes the files of data anew, at last where a
// model's time goes, and all files. A case that fails becomes a row that says why; the others go on. A
// model's convolution that nothing here runs is skipped with a word. Returns the exit code: that of the
// first failure.
int report_cases(const Asked& asked, const DeviceInfo& device, const ReportOptions& options,
                 const MeasureCase& measure);

}  // namespace convtune::cli
