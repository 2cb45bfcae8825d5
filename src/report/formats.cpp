// THE table of formats that a report is written in. An option of the command, its help and its file follow
// from a row.
#include "report/formats.h"

#include <fmt/format.h>

#include <array>

namespace convtune {
namespace {

constexpr std::array kFormats = {
    ReportFormat{"json", "as JSON", true, true, false,
                 [](const std::vector<Report>& reports) { return report_json(reports.front()); }},
    ReportFormat{"html", "as a page with charts", true, false, true, report_page},
    ReportFormat{"csv", "as CSV", false, true, false,
                 [](const std::vector<Report>& reports) { return report_csv(reports.front()); }},
    ReportFormat{"markdown", "as a table in Markdown, for an issue", false, false, false,
                 [](const std::vector<Report>& reports) { return report_markdown(reports.front()); }}};

}  // namespace

std::span<const ReportFormat> report_formats() {
  return kFormats;
}

Error has_no(const Report& report, std::string_view what, std::string_view whose) {
  constexpr std::array<std::string_view, std::variant_size_v<decltype(report.content)>> kCommands = {
      "tune or bench", "verify", "refine", "optimize", "analyze"};
  return Error(ErrorKind::invalid_argument, fmt::format("a report of {} has no {}; {} have",
                                                        kCommands[report.content.index()], what, whose));
}

}  // namespace convtune
