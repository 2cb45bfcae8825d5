// What tune and bench share: the walk over the cases, the table as it grows, and the result files.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comparison_table.h"
#include "convtune/device.h"
#include "convtune/problem.h"
#include "convtune/report.h"
#include "progress.h"

namespace convtune::cli {

struct ReportOptions {
  std::string json, csv;
  Detail detail;

  void add_to(CLI::App& app);
};

// What measuring a case came to: a row, or nothing when Ctrl-C stopped it before an answer.
struct CaseResult {
  std::optional<ReportRow> row;
  std::string kept;  // if stopped: what of the work is kept, for the last line
};

// Measures one case; `label` starts its progress lines.
using MeasureCase = std::function<CaseResult(const ConvProblem&, const std::string& label, ProgressLine&)>;

// Measures case after case, prints each as it is done and writes the files at the end. A case that
// fails becomes a row that says why; the others go on. Returns the exit code: that of the first failure.
int report_cases(const std::vector<ConvProblem>& problems, const DeviceInfo& device,
                 const ReportOptions& options, const MeasureCase& measure);

}  // namespace convtune::cli
