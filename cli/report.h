// What tune and bench share: the walk over the cases and the table as it grows; and the files of every
// report.
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
#include "options.h"
#include "output.h"
#include "progress.h"

namespace convtune::cli {

struct ReportOptions {
  std::string json, csv, html, markdown;
  Detail detail;

  void add_files_to(CLI::App& app);  // --json and --html
  void add_to(CLI::App& app);        // and what only tune and bench have
};

// The files of a report. Opened before anything is measured.
class ReportFiles {
 public:
  explicit ReportFiles(const ReportOptions& options);  // throws Error{io}, Error{invalid_argument}
  bool wanted() const { return json_ || csv_ || html_ || markdown_; }
  // Tables make room when standard output is spoken for.
  std::FILE* table_stream() const;
  // Adds the command that was typed.
  void write(Report report) const;
  // Writes what there is so far, as of a run that was interrupted: it stays where this process is killed.
  // Files of data alone; a page is drawn at the end, and a pipe is written to once.
  void write_so_far(Report report) const;

 private:
  bool has_stdout() const;

  OutputFile json_, csv_, html_, markdown_;
};

// What measuring a case came to: a row, or nothing when Ctrl-C stopped it before an answer.
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
// model's time goes, and all files. A case that fails becomes a row that says why; the others go on. Of a
// model, what nothing runs here is skipped with a word. Returns the exit code: that of the first failure.
int report_cases(const Asked& asked, const DeviceInfo& device, const ReportOptions& options,
                 const MeasureCase& measure);

}  // namespace convtune::cli
