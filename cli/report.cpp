// convtune report: pages and tables of reports that were saved as JSON.
#include "convtune/report.h"

#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "options.h"
#include "report_files.h"

namespace convtune::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> names;
  ReportOptions pages;

  int run() const {
    const ReportFiles files(pages);
    if (!files.wanted()) throw bad("name what to make: --html PAGE or --markdown FILE");
    std::vector<Report> reports;
    for (const std::string& name : names) reports.push_back(load_report(name));
    files.write(reports, names);
    return kOk;
  }
};

}  // namespace

Command add_report(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "report", "Make a page with charts, or a table, of reports that were saved as JSON");
  const auto report = std::make_shared<ReportCommand>();
  app->add_option("FILE", report->names,
                  "What --json of tune, bench, verify or refine wrote, or Python's OptimizeReport")
      ->type_name("FILE")
      ->required();
  report->pages.add_pages_to(*app);
  app->footer(
      "Examples:\n"
      "  convtune bench --suite stem --json stem.json\n"
      "  convtune report stem.json --html stem.html\n"
      "  convtune report before.json after.json --html both.html\n"
      "  convtune report stem.json --markdown -\n\n"
      "The page is one file that fetches nothing; tune, bench, verify and refine write it themselves\n"
      "with --html.");
  return {app, [report] { return report->run(); }};
}

}  // namespace convtune::cli
