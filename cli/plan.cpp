// convtune plan: what would run, why, and why everything else stepped aside. Measures nothing.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/convolution.h"
#include "convtune/error.h"
#include "options.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

struct PlanCommand {
  ProblemOptions problem;
  DeviceOptions device;
  std::string algorithm, config;

  int run() const {
    const std::vector<Conv2dProblem> problems = problem.problems();
    const Config forced = parse_config(config);
    const DeviceInfo where = device.select();
    for (std::size_t i = 0; i < problems.size(); ++i) {
      if (i > 0) fmt::print("\n");
      if (algorithm.empty())
        fmt::print("{}\n{}", convtune::plan(problems[i], where.device).explain(),
                   answer_table(problems[i], where));
      else
        fmt::print("{}", convtune::plan(problems[i], where.device, algorithm, forced).explain());
    }
    print_library_warnings();
    return 0;
  }

  static std::string answer_table(const Conv2dProblem& asked, const DeviceInfo& where) {
    Table table({{"algorithm"}, {"answer"}, {"candidates", Align::right}, {"first guess"}, {"because"}});
    for (const AlgorithmAnswer& answer : answers(asked, where.device)) {
      table.add_row({answer.vendor ? answer.algorithm + " (vendor)" : answer.algorithm,
                     answer.chosen      ? "chosen"
                     : answer.supported ? "could run"
                                        : "steps aside",
                     answer.supported ? fmt::format("{}", answer.candidates) : "-",
                     answer.supported ? to_string(answer.config) : "-", answer.reason},
                    answer.chosen ? Tone::strong : Tone::plain);
    }
    return table.render(style_of(stdout));
  }
};

}  // namespace

Command add_plan(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("plan", "Show what would run and why; measures nothing");
  const auto plan = std::make_shared<PlanCommand>();
  plan->problem.add_to(*app);
  plan->device.add_to(*app);
  CLI::Option* algorithm = app->add_option("--algorithm", plan->algorithm, "Plan with this algorithm");
  app->add_option("--config", plan->config, "Plan with this config, as in \"vectors=4 channels=6\"")
      ->needs(algorithm);
  app->footer(
      "Examples:\n"
      "  convtune plan alexnet_conv1\n"
      "  convtune plan g96mb1ic96ih56oc96kh3ph1 act=relu --algorithm direct");
  return {app, [plan] { return plan->run(); }};
}

}  // namespace convtune::cli
