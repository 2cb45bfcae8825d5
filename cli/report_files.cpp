// convtune report: pages and tables of reports that were saved as JSON.
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "convtune/error.h"
#include "convtune/report.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"

namespace convtune::cli {
namespace {

struct ReportCommand {
  std::vector<std::string> files;
  std::string html, markdown;

  int run() const {
    if (html.empty() && markdown.empty()) throw bad("name what to make: --html PAGE or --markdown FILE");
    const OutputFile page(html), table(markdown);
    if (page.is_stdout() && table.is_stdout())
      throw bad("only one of --html and --markdown can be standard output (-)");
    std::vector<Report> reports;
    for (const std::string& file : files) reports.push_back(load_report(file));
    std::string tables;
    for (std::size_t i = 0; table && i < reports.size(); ++i) {
      try {
        tables += (tables.empty() ? "" : "\n") + report_markdown(reports[i]);
      } catch (const Error& error) {
        throw Error(error.kind(), files[i] + ": " + error.what());
      }
    }
    table.write(tables);
    if (page) page.write(report_page(reports));
    return kOk;
  }
};

}  // namespace

Command add_report(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "report", "Make a page with charts, or a table, of reports that were saved as JSON");
  const auto report = std::make_shared<ReportCommand>();
  app->add_option("FILE", report->files,
                  "What --json of tune, bench, verify or refine wrote, or Python's OptimizeReport")
      ->type_name("FILE")
      ->required();
  app->add_option("--html", report->html, "Write the page to this file (- is standard output)")
      ->type_name("FILE");
  app->add_option("--markdown", report->markdown,
                  "Write a table in Markdown to this file, for an issue (- is standard output)")
      ->type_name("FILE");
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
