// convtune analyze: what a profile says, and what follows from it for the two parameters of the last stage.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/error.h"
#include "convtune/refine.h"
#include "exit_code.h"
#include "options.h"
#include "output.h"
#include "report_files.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct Analyze {
  std::string metrics, target, problem, source, python = python_program();
  ReportOptions results;

  int run() const {
    const Target on = find_target(target);
    AnalyzeOptions options;
    if (!problem.empty()) options.problem = one_problem(problem);
    const std::vector<KernelMetrics> kernels = load_metrics(metrics);
    if (!source.empty()) options.source = load_source(source);
    options.path = source, options.python = python;
    const ReportFiles files(results);
    std::FILE* const stream = files.table_stream();
    Analyzed analyzed;
    std::string text;
    for (const KernelMetrics& kernel : kernels) {
      Table table({{"what"}, {"finding"}});
      analyzed.kernels.push_back({kernel, analyze(kernel, on, options)});
      for (const Finding& finding : analyzed.kernels.back().findings)
        table.add_row({finding.what, finding.text});
      text += fmt::format("{}{} on {}\n{}", text.empty() ? "" : "\n", printable(kernel.kernel),
                          printable(on.name), table.render(style_of(stream)));
    }
    put(stream, text);
    if (files.wanted()) files.write({environment_of(on), std::move(analyzed)});
    return kOk;
  }
};

}  // namespace

Command add_analyze(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("analyze", "Say what a profiler's metrics of a kernel mean");
  const auto analyze = std::make_shared<Analyze>();
  app->add_option("METRICS", analyze->metrics,
                  "What Nsight Compute printed: `ncu --csv` of either page, or the details page as text; or "
                  "JSON, {\"kernel\": {\"metric\": number}}")
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
  analyze->results.add_files_to(*app);
  app->footer(
      "Examples:\n"
      "  ncu --set full --csv --page raw python a.py > m.csv\n"
      "  convtune analyze m.csv --target rtx4090 --problem alexnet_conv1\n"
      "  convtune analyze m.csv --target rtx4090 --html page.html\n\n"
      "What costs most comes first, what follows for num_warps and num_stages last, and then what the "
      "metrics do not have. Numbers may be in English or in the other form (1.234,5): what most numbers of "
      "the file are decides. Of several launches of a kernel the one of median time counts.\n\n"
      "Exit code 2 where no metric is one that it reads.");
  return {app, [analyze] { return analyze->run(); }};
}

}  // namespace convtune::cli
