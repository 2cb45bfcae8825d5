// convtune report: pages of reports that were saved as JSON.
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "convtune/report.h"
#include "exit_code.h"
#include "output.h"

namespace convtune::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> files;
  std::string html;

  int run() const {
    const OutputFile page(html);
    std::vector<Report> reports;
    for (const std::string& file : files) reports.push_back(load_report(file));
    page.write(report_page(reports));
    return kOk;
  }
};

}  // namespace

Command add_report(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("report", "Make a page with charts of reports that were saved as JSON");
  const auto report = std::make_shared<ReportCommand>();
  app->add_option("FILE", report->files,
                  "What --json of tune, bench, verify or refine wrote, or Python's OptimizeReport")
      ->type_name("FILE")
      ->required();
  app->add_option("--html", report->html, "Write the page to this file (- is standard output)")
      ->type_name("FILE")
      ->required();
  app->footer(
      "Examples:\n"
      "  convtune bench --suite stem --json stem.json\n"
      "  convtune report stem.json --html stem.html\n"
      "  convtune report before.json after.json --html both.html\n\n"
      "The page is one file that fetches nothing; tune, bench, verify and refine write it themselves\n"
      "with --html.");
  return {app, [report] { return report->run(); }};
}

}  // namespace convtune::cli
