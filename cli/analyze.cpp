// convtune analyze: what a profile says, and what follows from it for the two parameters of the last stage.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/error.h"
#include "convtune/refine.h"
#include "exit_code.h"
#include "options.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct Analyze {
  std::string metrics, target, problem, source, python = python_program();

  int run() const {
    const Target on = find_target(target);
    AnalyzeOptions options;
    if (!problem.empty()) options.problem = one_problem(problem);
    const std::vector<KernelMetrics> kernels = load_metrics(metrics);
    if (!source.empty()) options.source = load_source(source);
    options.path = source, options.python = python;
    std::string text;
    for (const KernelMetrics& kernel : kernels) {
      Table table({{"what"}, {"finding"}});
      for (const Finding& finding : analyze(kernel, on, options)) table.add_row({finding.what, finding.text});
      text += fmt::format("{}{} on {}\n{}", text.empty() ? "" : "\n", printable(kernel.kernel),
                          printable(on.name), table.render(style_of(stdout)));
    }
    fmt::print("{}", text);
    return kOk;
  }
};

}  // namespace

Command add_analyze(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("analyze", "Say what a profiler's metrics of a kernel mean");
  const auto analyze = std::make_shared<Analyze>();
  app->add_option("METRICS", analyze->metrics,
                  "JSON: {\"kernel\": {\"metric\": number}}, metrics as Nsight Compute names them; or what "
                  "`ncu --csv` printed")
      ->type_name("FILE")
      ->required();
  app->add_option("--target", analyze->target, "Where it ran: " + target_help())
      ->type_name("TARGET")
      ->required();
  app->add_option("--problem", analyze->problem, "What it computed: a case name or a benchdnn line")
      ->type_name("PROBLEM");
  app->add_option("--source", analyze->source, "The Triton file that the kernel is of")->type_name("FILE");
  app->add_option("--python", analyze->python, "The Python that reads the source")
      ->type_name("PROGRAM")
      ->capture_default_str();
  app->footer(
      "Examples:\n"
      "  convtune analyze metrics.json --target rtx4090 --problem alexnet_conv1\n"
      "  convtune analyze metrics.json --target rtx4090 --source conv.py\n\n"
      "Metrics that it reads, where they are there: launch__grid_size, launch__block_size, "
      "launch__registers_per_thread, launch__shared_mem_per_block, gpu__time_duration.sum, "
      "sm__throughput, dram__throughput, sm__warps_active, lts__t_sector_hit_rate, and what a finding asks "
      "for.");
  return {app, [analyze] { return analyze->run(); }};
}

}  // namespace convtune::cli
