// convtune plan: what would run, why, and why everything else stepped aside. Measures nothing.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "command.h"
#include "comparison_table.h"
#include "convtune/convolution.h"
#include "convtune/database.h"
#include "convtune/error.h"
#include "convtune/estimate.h"
#include "convtune/units.h"
#include "model_table.h"
#include "options.h"
#include "output.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

struct PlanCommand {
  ProblemOptions problem;
  DeviceOptions device;
  std::string algorithm, config, target;
  bool explain_config = false;
  std::optional<std::int64_t> candidates;

  int run() const {
    if (!target.empty()) return run_for_target();
    const auto [problems, model] = problem.asked();
    const Config forced = parse_config(config);
    const DeviceInfo where = device.select();
    if (model) return run_for_model(*model, where, forced);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      if (i > 0) fmt::print("\n");
      const Convolution found = planned(problems[i], where, forced);
      fmt::print("{}", sheet(found));
      if (explain_config) fmt::print("\n{}", explained(found));
      if (algorithm.empty()) fmt::print("\n{}", answer_table(problems[i], where));
    }
    print_library_warnings();
    return 0;
  }

  Convolution planned(const ConvProblem& asked, const DeviceInfo& where, const Config& forced) const {
    return algorithm.empty() ? convtune::plan(asked, where.device)
                             : convtune::plan(asked, where.device, algorithm, forced);
  }

  // A row a convolution; its time is the record's that the plan is from.
  int run_for_model(const Model& model, const DeviceInfo& where, const Config& forced) const {
    const Database records;
    std::vector<PlannedRow> rows;
    for (const ModelConvolution& one : model.convolutions) {
      const Convolution found = planned(one.problem, where, forced);
      const Plan& plan = found.plan();
      PlannedRow row{&one, plan.algorithm, std::string(to_string(plan.source))};
      if (plan.source == PlanSource::tuned || plan.source == PlanSource::unproven)
        if (const auto record = records.find(found.problem(), where.fingerprint)) row.us = record->time_us;
      rows.push_back(std::move(row));
    }
    fmt::print("{}", render_plans(std::move(rows), "recorded", style_of(stdout)));
    print_library_warnings();
    return 0;
  }

  static std::string sheet(const Convolution& planned) {
    std::string text;
    const auto line = [&](std::string_view name, const std::string& value) {
      text += wrapped(fmt::format("{:<10} {}", name, printable(value)), style_of(stdout).width, 11) + '\n';
    };
    const Plan& plan = planned.plan();
    line("problem", to_string(planned.problem()));
    line("device", fmt::format("{} ({})", to_string(planned.device().device), planned.device().name));
    line("plan", with_config(plan.algorithm, plan.config));
    line("source", fmt::format("{}: {}", to_string(plan.source), plan.why));
    const bool packs = planned.problem().direction != Direction::backward_weights;
    if (planned.workspace_bytes())
      line("memory", memory(*planned.workspace_bytes(), packs ? planned.packed_bytes() : 0));
    else if (packs)
      line("memory", fmt::format("{} bytes of packed weights", planned.packed_bytes()));
    return text;
  }

  // The memory that a run takes, and packed weights, where there are any.
  static std::string memory(std::size_t workspace, std::size_t packed) {
    std::string text = workspace == 0 ? "nothing beside the tensors"
                                      : fmt::format("{} bytes of workspace beside the tensors", workspace);
    if (packed > 0) text += fmt::format(" and {} bytes of packed weights", packed);
    return text;
  }

  // A field a line; its meaning begins after the name and the value, which are aligned.
  static std::string explained(const Convolution& planned) {
    constexpr int kMeaningAt = 25;
    std::string text;
    for (const std::string& line : CLI::detail::split(planned.explain_config(), '\n'))
      text += wrapped(line, style_of(stdout).width, kMeaningAt) + '\n';
    return text;
  }

  int run_for_target() const {
    const auto [problems, model] = problem.asked();
    const Target on = find_target(target);
    TargetPlanOptions options;
    options.algorithm = algorithm;
    options.candidates = candidates.value_or(options.candidates);
    if (model) return run_for_target(*model, on, options);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const TargetPlan found = plan_for_target(problems[i], on, options);
      const Style style = style_of(stdout);
      const std::string title =
          fmt::format("{} on {} ({}): compiled for it, not run; times are estimates of a model",
                      label(found.problem), on.name, on.product);
      fmt::print("{}{}\n{}", i > 0 ? "\n" : "", wrapped(printable(title), style.width, 2),
                 estimate_table(found, style));
      if (const std::string said = memory_of(found); !said.empty())
        fmt::print("{}\n", wrapped(said, style.width, 2));
      for (const auto& [name, remark] : found.remarks)
        fmt::print("{}\n", wrapped(fmt::format("{} {}", name, printable(remark)), style.width, 2));
      for (const auto& [name, why] : found.refusals)
        fmt::print("{}\n", wrapped(fmt::format("{} steps aside: {}", name, printable(why)), style.width, 2));
      if (found.not_tried > 0)
        fmt::print("{} not compiled (--candidates)\n",
                   counted(found.not_tried, "config was", "configs were"));
    }
    print_library_warnings();
    return 0;
  }

  // A row a convolution, with the best estimate.
  static int run_for_target(const Model& model, const Target& on, const TargetPlanOptions& options) {
    const std::string words = fmt::format("{}: compiled for {} ({}), not run; times are estimates of a model",
                                          printable(model.name), on.name, on.product);
    fmt::print("{}\n", wrapped(words, style_of(stdout).width, 2));
    std::vector<PlannedRow> rows;
    for (const ModelConvolution& one : model.convolutions) {
      const TargetPlan found = plan_for_target(one.problem, on, options);
      PlannedRow row{&one, "-", "-"};
      if (!found.candidates.empty() && found.candidates[0].failure.empty()) {
        const CandidateEstimate& best = found.candidates[0];
        row = {&one, best.algorithm, "estimate", best.estimate_us};
      }
      rows.push_back(std::move(row));
    }
    fmt::print("{}", render_plans(std::move(rows), "estimated", style_of(stdout)));
    print_library_warnings();
    return 0;
  }

  // Says the memory that the best candidate takes, and the most that another one does.
  static std::string memory_of(const TargetPlan& found) {
    std::size_t most = 0;
    for (const CandidateEstimate& one : found.candidates) most = std::max(most, one.workspace_bytes);
    if (found.candidates.empty() || !found.candidates[0].failure.empty()) return {};
    const CandidateEstimate& best = found.candidates[0];
    const bool packs = found.problem.direction != Direction::backward_weights;
    std::string text =
        fmt::format("memory of the first: {}", memory(best.workspace_bytes, packs ? best.packed_bytes : 0));
    if (most > best.workspace_bytes) text += fmt::format("; of another up to {} bytes of workspace", most);
    return text;
  }

  static std::string estimate_table(const TargetPlan& found, const Style& style) {
    double least_us = 0;
    for (const CandidateEstimate& one : found.candidates)
      if (one.failure.empty() && (least_us == 0 || one.estimate_us < least_us)) least_us = one.estimate_us;
    const Scale time = scale_of_us(least_us);
    Table table({{std::string("estimate ") + time.unit, Align::right},
                 {"algorithm"},
                 {"registers", Align::right, 6},
                 {"spills B", Align::right, 5},
                 {"smem B", Align::right, 7},
                 {"threads", Align::right, 4},
                 {"blocks", Align::right, 3},
                 {"occupancy", Align::right, 8},
                 {"limiter", Align::left, 2},
                 {"model's bound", Align::left, 1},
                 {"config"}});
    for (const CandidateEstimate& one : found.candidates) {
      if (!one.failure.empty()) {
        table.add_row(
            {"-", one.algorithm, "-", "-", "-", "-", "-", "-", "-", "-",
             to_string(one.config) + ": " + printable(one.failure.substr(0, one.failure.find('\n')))},
            Tone::bad);
        continue;
      }
      table.add_row({time(one.estimate_us), one.algorithm, fmt::format("{}", one.registers),
                     fmt::format("{}", one.spill_bytes), fmt::format("{}", one.smem_bytes),
                     fmt::format("{}", one.threads), fmt::format("{}", one.blocks),
                     fmt::format("{:.0f} %", 100 * one.occupancy.share),
                     std::string(to_string(one.occupancy.limiter)), one.bound, to_string(one.config)});
    }
    return table.render(style);
  }

  static std::string answer_table(const ConvProblem& asked, const DeviceInfo& where) {
    Table table({{"algorithm"},
                 {"answer"},
                 {"candidates", Align::right},
                 {"first guess", Align::left, 1},
                 {"because"}});
    for (const AlgorithmAnswer& answer : answers(asked, where.device)) {
      table.add_row(
          {answer.vendor ? answer.algorithm + " (vendor)" : answer.algorithm,
           answer.chosen      ? "chosen"
           : answer.supported ? "could run"
                              : "steps aside",
           answer.supported ? fmt::format("{}", answer.candidates) : "-",
           answer.supported ? to_string(answer.config) : "-", answer.chosen ? "see source" : answer.reason},
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
  plan->problem.add_train_to(*app);
  plan->device.add_to(*app);
  add_way(*app, plan->algorithm, plan->config, "Plan with");
  app->add_flag("--explain-config", plan->explain_config, "Say what each field of the config means");
  app->add_option("--target", plan->target, "For a GPU that need not be here: " + target_help())
      ->type_name("TARGET")
      ->group(group::kWhere)
      ->excludes("--device")
      ->excludes("--threads")
      ->excludes("--config");
  add_whole_number(*app, "--candidates", plan->candidates, 1, 10'000,
                   "With --target: compile at most this many configs (default: 32)");
  app->footer(
      "Examples:\n"
      "  convtune plan alexnet_conv1\n"
      "  convtune plan alexnet_conv1 --target rtx4090   # needs NVRTC, and no GPU\n"
      "  convtune plan g96mb1ic96ih56oc96kh3ph1 act=relu --algorithm direct\n\n"
      "For a --target the candidates are compiled, and none is run: times are those of a model.");
  return {app, [plan] { return plan->run(); }};
}

}  // namespace convtune::cli
