// convtune refine: a Triton source with a renewed autotune list, by the rules of the last tuning stage.
#include "convtune/refine.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "command.h"
#include "convtune/error.h"
#include "exit_code.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "progress.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct Refine {
  std::string file, metrics, target, stage = "stage=micro", original, problem, output = "-";
  bool measure = false;
  std::string python = "python3", min_gain = "2%";
  std::optional<std::int64_t> timeout;

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
    const RefineMeasureOptions measuring = measure_options();
    const OutputFile out(output);
    ProgressLine progress(stderr, style_of(stderr));
    Refined refined;
    try {
      refined = measure ? refine_measured(file, kernels, on, options, with_progress(measuring, progress))
                        : refine(source, kernels, on, options);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", printable(file), error.what()));
    }
    progress.clear();
    if (refined.interrupted) {
      put(stderr, "convtune: interrupted: nothing is written\n");
      return kInterrupted;
    }
    std::FILE* const report = out.is_stdout() || refined.source.empty() ? stderr : stdout;
    for (const std::string& note : refined.notes) put(report, printable(note) + '\n');
    for (const std::string& verdict : refined.verdicts) put(report, printable(verdict) + '\n');
    if (refined.source.empty())
      throw Error(ErrorKind::unsupported,
                  fmt::format("{}: the stage has no list to offer (R4 says why); nothing is written",
                              printable(file)));
    for (const std::string& config : refined.configs) put(report, fmt::format("  {}\n", printable(config)));
    if (measure) {
      put(report, fmt::format("on {}\n{}", printable(refined.place), measured_table(refined, report)));
      put(report, refined.changed ? "the new list is written: a neighbour is proven faster\n"
                                  : "reverted: the list is written as it was\n");
    }
    out.write(refined.source);
    return kOk;
  }

  RefineMeasureOptions measure_options() const {
    RefineMeasureOptions options;
    options.python = python;
    options.min_gain = parse_share(min_gain);
    if (options.min_gain < 0.01)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("--min-gain {} is less than 1 %, which is not worth a change", printable(min_gain)));
    if (timeout) options.seconds = static_cast<double>(*timeout);
    options.cancel = interrupt_flag();
    return options;
  }
  static RefineMeasureOptions with_progress(RefineMeasureOptions options, ProgressLine& progress) {
    options.progress = [&progress](const std::string& what) { progress.show(what); };
    return options;
  }

  static std::string measured_table(const Refined& refined, std::FILE* report) {
    Table table({{"config"},
                 {"median us", Align::right},
                 {"deviation", Align::right},
                 {"samples", Align::right},
                 {"of the original", Align::right},
                 {"outputs"}});
    const double original_us = refined.measured.empty() ? 0 : refined.measured[0].time_us;
    for (const MeasuredConfig& one : refined.measured) {
      const std::string config = fmt::format("{} ({})", printable(one.config), one.reason);
      if (!one.failure.empty())
        table.add_row({config, "-", "-", "-", "-", "FAILED: " + printable(one.failure)}, Tone::bad);
      else if (one.n == 0)
        table.add_row({config, "-", "-", "-", "-", one.output});
      else
        table.add_row({config, fmt::format("{:.1f}", one.time_us),
                       fmt::format("{:.1f} %", 100 * one.mad_us / one.time_us), fmt::format("{}", one.n),
                       fmt::format("{:.1f} %", 100 * one.time_us / original_us), one.output});
    }
    return table.render(style_of(report));
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
  CLI::Option* measure = app->add_flag(
      "--measure", refine->measure,
      "Run the configs here, beside the original, and keep the list as it was unless one is proven "
      "faster (needs PyTorch, Triton and a GPU)");
  app->add_option("--python", refine->python, "The Python that has PyTorch and Triton")
      ->capture_default_str()
      ->needs(measure);
  app->add_option("--min-gain", refine->min_gain, "The gain that must be proven: 1% or more")
      ->capture_default_str()
      ->needs(measure);
  add_whole_number(*app, "--timeout", refine->timeout, 1, 86'400,
                   "Seconds that a config may take to compile, or to answer (default: 300)")
      ->needs(measure);
  app->footer(
      "Examples:\n"
      "  convtune refine conv.py --metrics metrics.json --target rtx4090 -o refined.py\n"
      "  convtune refine conv.py --metrics metrics.json --target cuda:0 --measure -o refined.py\n"
      "  convtune refine conv.py --metrics metrics.json --target h100 --original \"BLOCK_M=32 "
      "BLOCK_N=64\"\n\n"
      "Only the list changes: 3 to 6 configs, the original first. Triton's autotuner picks among them, "
      "unless\n"
      "--measure decides first: each config in Python processes of its own, outputs compared, and the "
      "fastest "
      "held\n"
      "against the original in two contests. It feeds the file's get_inputs(), else the problem's input. "
      "What the\n"
      "file has for tests is left out. Exit code 2 and no file where the source is not understood, the "
      "original "
      "is\n"
      "not found, or the rules leave no list; 3 where --measure finds no GPU.");
  return {app, [refine] { return refine->run(); }};
}

}  // namespace convtune::cli
