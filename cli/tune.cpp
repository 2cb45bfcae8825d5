// convtune tune: search, prove, record; or answer from the record.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "convtune/tuner.h"
#include "fleet.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "report_cases.h"

namespace convtune::cli {
namespace {

struct Tune {
  ProblemOptions problem;
  DeviceOptions device;
  ReportOptions results;
  std::string devices, budget = "60s", min_gain = "2%";
  bool retune = false, no_save = false;

  int run() const;
  int run_on_all() const;
  CaseResult tune_case(const ConvProblem& problem, const DeviceInfo& where, TuneOptions options,
                       const CasePlace& place, ProgressLine& progress) const;
};

CaseResult Tune::tune_case(const ConvProblem& asked, const DeviceInfo& where, TuneOptions options,
                           const CasePlace& place, ProgressLine& progress) const {
  options.progress = [&](Progress step) {
    const bool timed = options.budget_trials == 0;  // else trials are limited, not time
    if (!timed) step.eta_seconds = 0;
    progress.show(progress_text(place.label, step, place.seconds_behind(timed ? options.budget_seconds : 0)));
  };
  TuningReport report = convtune::tune(asked, where.device, options);
  progress.clear();
  for (const std::string& warning : report.warnings) print_warning(warning);
  if (report.interrupted) {
    const std::string trials = counted(report.trials + report.resumed, "trial", "trials");
    return {std::nullopt, no_save ? "nothing of the last is kept (--no-save)"
                                  : fmt::format("{} of {} are kept, the same command goes on from there",
                                                trials, label(asked))};
  }
  return {report_row(std::move(report)), {}};
}

int Tune::run_on_all() const {
  parse_budget(budget), parse_share(min_gain);  // refused before any process is started
  const Asked asked = problem.asked();
  const std::vector<DeviceInfo> places = fleet_devices(devices, device.threads);
  std::vector<std::string> same = {"--budget", budget, "--min-gain", min_gain};
  if (retune) same.emplace_back("--retune");
  if (device.threads) same.insert(same.end(), {"--threads", std::to_string(*device.threads)});
  Fleet fleet(asked.problems, places, same);
  return report_cases(
      asked, places.front(), results,
      [&](const ConvProblem&, const CasePlace& place, ProgressLine& progress) -> CaseResult {
        const std::size_t at = asked.problems.size() - place.behind - 1;
        if (auto row = fleet.wait_for(at, progress)) return {std::move(row), {}};
        return {std::nullopt, "what was found and tried is kept, the same command goes on from there"};
      });
}

int Tune::run() const {
  if (!devices.empty()) return run_on_all();
  const Asked asked = problem.asked();
  TuneOptions options;
  const Budget limit = parse_budget(budget);
  options.budget_seconds = limit.seconds;
  options.budget_trials = limit.trials;
  options.min_gain = parse_share(min_gain);
  options.retune = retune;
  options.save = !no_save;
  options.cancel = interrupt_flag();
  const DeviceInfo where = device.select();
  return report_cases(asked, where, results,
                      [&](const ConvProblem& one, const CasePlace& place, ProgressLine& progress) {
                        return tune_case(one, where, options, place, progress);
                      });
}

}  // namespace

Command add_tune(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("tune", "Search for the fastest way to run a problem and record it");
  const auto tune = std::make_shared<Tune>();
  tune->problem.add_to(*app);
  tune->problem.add_train_to(*app);
  tune->device.add_to(*app);
  begin_group(*app, group::kWhere);
  CLI::Option* const all =
      app->add_option("--devices", tune->devices,
                      "Of one kind, a process each: all (the GPUs here, else the CPU), or cuda:0,cuda:2")
          ->type_name("DEVICES")
          ->excludes("--device");
  begin_group(*app, group::kHow);
  app->add_option("--budget", tune->budget,
                  "How long a case may take, everything counted: 90s, 5m, 500ms or 200t (trials)")
      ->type_name("BUDGET")
      ->capture_default_str();
  app->add_option("--min-gain", tune->min_gain, "What a challenger must be faster by, proven")
      ->type_name("SHARE")
      ->capture_default_str();
  app->add_flag("--retune", tune->retune,
                "Search from the beginning even if a record answers, and try what was quarantined");
  app->add_flag("--no-save", tune->no_save, "Keep neither the record nor the trials")->excludes(all);
  tune->results.add_to(*app);
  app->add_flag("--verbose", tune->results.detail.verbose, "Show every rule of the last stage");
  app->footer(
      "Examples:\n"
      "  convtune tune alexnet_conv1\n"
      "  convtune tune alexnet_conv1 --batch 8 --budget 30s\n"
      "  convtune tune mb1ic3ih224oc64kh7sh2ph3 act=relu --retune\n"
      "  convtune tune --suite stem --json stem.json\n"
      "  convtune tune --model resnet50.onnx --batch 8 --budget 30s\n"
      "  convtune tune --model resnet50.onnx --devices all\n"
      "  convtune tune --model resnet50.onnx --train --dtype bf16 --layout nhwc\n\n"
      "A quarter of the budget goes to the vendor's ways, in the order of its heuristics; then candidates "
      "are tried, the first guess of every algorithm first and the others by forecast; then what the vendor "
      "has left. 8 % are kept for the best of both in turns, up to 15 % for the last stage, 10 % for the "
      "contest. What a small budget leaves out is said: the last stage is 'skipped, budget', and so are "
      "some of the vendor's ways. Four of those, a first batch of candidates and the contest are always "
      "held, so that a GPU takes about 3 s at least; what has begun is finished.\n\n"
      "Ctrl-C keeps what was tried; the same command then goes on from there. Where a contest could not "
      "decide (a busy machine), the same command holds it again. Where the record cannot be written, the "
      "exit code is 2.");
  return {app, [tune] { return tune->run(); }};
}

}  // namespace convtune::cli
