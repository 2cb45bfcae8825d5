// convtune cases: the named problems.
#include "convtune/cases.h"

#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "options.h"
#include "table.h"

namespace convtune::cli {
namespace {

void print_cases(const std::string& wanted) {
  Table table({{"suite", Align::left, 2},
               {"case"},
               {"GFLOP", Align::right, 3},
               {"MB", Align::right, 1},
               {"problem"}});
  const auto add = [&](const std::string& suite, const ConvProblem& problem) {
    table.add_row({suite, problem.name, fmt::format("{:.3g}", problem.flops() / 1e9),
                   fmt::format("{:.3g}", problem.bytes() / 1e6), key(problem)});
  };
  if (wanted.empty()) {
    for (const Suite& suite : suites())
      for (const ConvProblem& problem : suite.problems) add(suite.name, problem);
  } else {
    for (const ConvProblem& problem : suite_problems(wanted)) add(wanted, problem);
  }
  fmt::print("{}", table.render(style_of(stdout)));
}

}  // namespace

Command add_cases(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("cases", "List the named problems");
  const auto suite = std::make_shared<std::string>();
  app->add_option("SUITE", *suite, "Only the problems of " + suite_help());
  app->footer("Examples:\n  convtune cases\n  convtune cases stem");
  return {app, [suite] {
            print_cases(*suite);
            return 0;
          }};
}

}  // namespace convtune::cli
