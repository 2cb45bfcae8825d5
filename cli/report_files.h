// Files of a report: an option and a file for each of report_formats().
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <utility>
#include <vector>

#include "comparison_table.h"
#include "convtune/report.h"
#include "output.h"

namespace convtune::cli {

struct ReportOptions {
  std::vector<std::string> paths = std::vector<std::string>(report_formats().size());  // empty: not asked for
  Detail detail;

  // Adds --json, --html and their like: of formats that every report has, or of those for people alone.
  void add_files_to(CLI::App& app);
  void add_pages_to(CLI::App& app);
  void add_to(CLI::App& app);  // every format, and what only tune and bench have

 private:
  void add_file_to(CLI::App& app, std::size_t format);
};

// Opened before anything is measured.
class ReportFiles {
 public:
  explicit ReportFiles(const ReportOptions& options);  // throws Error{io}, Error{invalid_argument}
  bool wanted() const { return !files_.empty(); }
  // Tables make room when standard output is spoken for.
  std::FILE* table_stream() const;
  // Adds the command that was typed.
  void write(Report report) const;
  // Reports that were loaded from files of these names, which messages begin with.
  void write(const std::vector<Report>& reports, const std::vector<std::string>& names) const;
  // Writes what there is so far, as of a run that was interrupted: it stays where this process is killed.
  // Files of data alone; a page is drawn at the end, and a pipe is written to once.
  void write_so_far(Report report) const;

 private:
  std::vector<std::pair<const ReportFormat*, OutputFile>> files_;
};

}  // namespace convtune::cli
