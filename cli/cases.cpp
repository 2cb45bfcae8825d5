// convtune cases: the named problems.
#include "convtune/cases.h"

#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "model_table.h"
#include "options.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

void print_cases(const std::string& wanted, const ProblemOptions& changes) {
  Table table({{"suite", Align::left, 2},
               {"case"},
               {"GFLOP", Align::right, 3},
               {"MB", Align::right, 1},
               {"problem"}});
  const auto add = [&](const std::string& suite, const ConvProblem& listed) {
    const ConvProblem problem = changes.changed(listed);
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

struct Cases {
  std::string suite, json;
  ProblemOptions problem;

  int run() const {
    if (problem.model.empty()) {
      print_cases(suite, problem);
      return 0;
    }
    const OutputFile file(json);
    const Asked asked = problem.asked();
    put(file.is_stdout() ? stderr : stdout,
        render_convolutions(*asked.model, style_of(file.is_stdout() ? stderr : stdout)));
    if (file) file.write(model_json(*asked.model));
    return 0;
  }
};

}  // namespace

Command add_cases(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("cases", "List the named problems, or a model's convolutions");
  const auto cases = std::make_shared<Cases>();
  CLI::Option* suite = app->add_option("SUITE", cases->suite, "Only the problems of " + suite_help());
  CLI::Option* model = cases->problem.add_model_to(*app)->excludes(suite);
  cases->problem.add_train_to(*app);
  app->get_option("--train")->needs(model);
  app->add_option("--json", cases->json,
                  "Write the model's convolutions to this file as JSON (- is standard output)")
      ->type_name("FILE")
      ->needs(model);
  app->footer(
      "Examples:\n"
      "  convtune cases\n"
      "  convtune cases stem\n"
      "  convtune cases --model resnet50.onnx --batch 8 --json resnet50.json\n\n"
      "Of a model: each convolution that it runs, with what of bias, residual and activation follows it, "
      "and how often. tune, bench, plan and verify take --model, too, with the ONNX file or that JSON.");
  return {app, [cases] { return cases->run(); }};
}

}  // namespace convtune::cli
