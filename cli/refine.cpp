// convtune refine: a Triton source with a renewed autotune list, by the rules of the last tuning stage.
#include "convtune/refine.h"

#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct Refine {
  std::string file, metrics, target, stage = "stage=micro", original, problem, output = "-";

  int run() const {
    if (stage != "stage=micro")
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("--set '{}' is not known; there is stage=micro", printable(stage)));
    const Target on = find_target(target);
    RefineOptions options;
    options.original = original;
    if (!problem.empty()) options.problem = one_problem(problem);
    const std::vector<KernelMetrics> kernels = load_metrics(metrics);
    const std::string source = load_source(file);
    const OutputFile out(output);
    Refined refined;
    try {
      refined = refine(source, kernels, on, options);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", printable(file), error.what()));
    }
    std::FILE* const report = out.is_stdout() || refined.source.empty() ? stderr : stdout;
    for (const std::string& note : refined.notes) fmt::print(report, "{}\n", printable(note));
    for (const std::string& verdict : refined.verdicts) fmt::print(report, "{}\n", printable(verdict));
    if (refined.source.empty())
      throw Error(ErrorKind::unsupported,
                  fmt::format("{}: the stage has no list to offer (R4 says why); nothing is written",
                              printable(file)));
    for (const std::string& config : refined.configs) fmt::print(report, "  {}\n", printable(config));
    out.write(refined.source);
    return kOk;
  }
};

}  // namespace

Command add_refine(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("refine", "Renew the autotune list of a Triton file from its profile");
  const auto refine = std::make_shared<Refine>();
  app->add_option("FILE", refine->file, "A Triton source with one @triton.autotune list")->required();
  app->add_option("--metrics", refine->metrics, "Its profile, as `convtune analyze` reads it")->required();
  app->add_option("--target", refine->target, "Where it runs: " + target_help())->required();
  app->add_option("--set", refine->stage, "The stage: stage=micro changes num_warps and num_stages alone")
      ->capture_default_str();
  app->add_option(
      "--original", refine->original,
      "The config that was profiled, as in \"BLOCK_M=32 num_stages=2\" (default: found by the grid)");
  app->add_option(
      "--problem", refine->problem,
      "What it computed: a case name or a benchdnn line (default: the case whose nn.Conv2d the file has)");
  app->add_option("--output,-o", refine->output, "Where the new file goes (- is standard output)")
      ->capture_default_str();
  app->footer(
      "Examples:\n"
      "  convtune refine conv.py --metrics metrics.json --target rtx4090 -o refined.py\n"
      "  convtune refine conv.py --metrics metrics.json --target h100 --original \"BLOCK_M=32 "
      "BLOCK_N=64\"\n\n"
      "Only the list changes: 3 to 6 configs, the original first. Nothing is measured: Triton's autotuner "
      "picks\n"
      "among them. What the file has for tests is left out. Exit code 2 and no file where the source is not\n"
      "understood, the original is not found, or the rules leave no list.");
  return {app, [refine] { return refine->run(); }};
}

}  // namespace convtune::cli
