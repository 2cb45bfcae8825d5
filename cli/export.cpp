// convtune export: a problem as source code that stands alone.
#include "convtune/export.h"

#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "table.h"

namespace convtune::cli {
namespace {

struct Export {
  ProblemOptions problem;
  std::string format = "triton", output = "-";
  ExportOptions options;

  int run() const {
    if (format != "triton")
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("--format '{}' is not known; there is triton", printable(format)));
    const std::vector<Conv2dProblem> problems = problem.problems();
    if (problems.size() != 1)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} problems are too many for one file; name one", problems.size()));
    const OutputFile out(output);
    out.write(export_triton(problems[0], options));
    return kOk;
  }
};

}  // namespace

Command add_export(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("export", "Write a problem's kernel as a Python file that stands alone");
  const auto command = std::make_shared<Export>();
  command->problem.add_to(*app);
  app->add_option("--format", command->format, "triton: an autotuned implicit-GEMM kernel in Triton")
      ->capture_default_str();
  app->add_option("--module-name", command->options.module_name, "Of the nn.Module in the file")
      ->capture_default_str();
  app->add_option("--output,-o", command->output, "Where the file goes (- is standard output)")
      ->capture_default_str();
  app->footer(
      "Examples:\n"
      "  convtune export alexnet_conv1 -o conv.py\n"
      "  convtune export mb1ic3ih224oc64kh7sh2ph3 act=relu --module-name Stem\n\n"
      "Its autotune list is a start that was not measured for the problem; `convtune refine` goes on from a "
      "profile.");
  return {app, [command] { return command->run(); }};
}

}  // namespace convtune::cli
