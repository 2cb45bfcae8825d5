// See report_files.h.
#include "report_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "command_line.h"
#include "convtune/error.h"
#include "options.h"

namespace convtune::cli {

void ReportOptions::add_file_to(CLI::App& app, std::size_t format) {
  const ReportFormat& row = report_formats()[format];
  app.add_option(fmt::format("--{}", row.name), paths[format],
                 fmt::format("Write the results to this file {} (- is standard output)", row.in_words))
      ->type_name("FILE");
}

void ReportOptions::add_files_to(CLI::App& app) {
  begin_group(app, group::kOutput);
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (report_formats()[i].of_every_report) add_file_to(app, i);
  begin_group(app, group::kHow);
}

void ReportOptions::add_pages_to(CLI::App& app) {
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (!report_formats()[i].is_data) add_file_to(app, i);
}

void ReportOptions::add_to(CLI::App& app) {
  begin_group(app, group::kOutput);
  for (std::size_t i = 0; i < paths.size(); ++i) add_file_to(app, i);
  app.add_flag("--all", detail.all, "Show every way of the vendor's, not only the best of each layout");
}

ReportFiles::ReportFiles(const ReportOptions& options) {
  std::string names;
  for (std::size_t i = 0; i < options.paths.size(); ++i) {
    if (options.paths[i].empty()) continue;
    files_.emplace_back(&report_formats()[i], OutputFile(options.paths[i]));
    if (files_.back().second.is_stdout())
      names += fmt::format("{}--{}", names.empty() ? "" : " and ", report_formats()[i].name);
  }
  if (std::ranges::count_if(files_, [](const auto& file) { return file.second.is_stdout(); }) > 1)
    throw bad(fmt::format("{}: only one of them can be standard output (-)", names));
}

std::FILE* ReportFiles::table_stream() const {
  return std::ranges::any_of(files_, [](const auto& file) { return file.second.is_stdout(); }) ? stderr
                                                                                               : stdout;
}

void ReportFiles::write(Report report) const {
  report.environment.command = typed_command();
  for (const auto& [format, file] : files_) file.write(format->write({report}));
}

void ReportFiles::write(const std::vector<Report>& reports, const std::vector<std::string>& names) const {
  for (const auto& [format, file] : files_) {
    std::string text;
    if (format->joins_reports) text = format->write(reports);
    for (std::size_t i = 0; i < reports.size() && !format->joins_reports; ++i) try {
        text += (text.empty() ? "" : "\n") + format->write({reports[i]});
      } catch (const Error& error) {
        throw Error(error.kind(), names[i] + ": " + error.what());
      }
    file.write(text);
  }
}

void ReportFiles::write_so_far(Report report) const {
  report.environment.command = typed_command();
  report.interrupted = true;
  try {
    for (const auto& [format, file] : files_)
      if (format->is_data && file.is_replaced()) file.write(format->write({report}));
  } catch (const Error& error) {
    print_warning(error.what());  // at the end it is an error, should it last
  }
}

}  // namespace convtune::cli
