// See last_stage.h; what was decided beside the rules: docs/decisions/0010-last-stage-of-tune.md.
#include "tune/last_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/resources.h"
#include "tune/compile_ahead.h"
#include "tune/stage_contest.h"

namespace convtune {
namespace {

constexpr double kLeastGain = 0.01;  // a smaller one is not worth a config that nobody searched for

// Returns the compiler's report (registers, spills) of the winner, which was compiled before.
OccupancyEvidence evidence_of(const Algorithm& algorithm, const Config& config, const ConvProblem& problem,
                              const DeviceInfo& device, const Target& target) {
  OccupancyEvidence evidence;
  if (const auto resources = resources_of(algorithm, config, problem, device, target))
    evidence.registers = resources->registers, evidence.smem_bytes = resources->smem_bytes;
  return evidence;
}

WarpsAnswer warps_answer(const StageView& view, const Algorithm& algorithm, const Config& config,
                         const ConvProblem& problem, const DeviceInfo& device,
                         const std::optional<Target>& target) {
  if (view.warps) return *view.warps;
  if (!target)
    return {{},
            fmt::format("{} stays {}: nothing is known of the occupancy", view.parameters.warps_name,
                        view.config.warps)};
  return suggested_warps(view.config.warps, evidence_of(algorithm, config, problem, device, *target), *target,
                         view.parameters);
}

// The list is there: why nothing of it is measured, or nothing.
std::string why_not_measured(const StageList& list, const Contender& winner, const Budget& budget) {
  if (list.configs.empty()) return "not measured: there is no list";
  if (const std::string slow = too_slow_for_contest(winner.screen_us); !slow.empty())
    return fmt::format("not measured: {}: the original stays", slow);
  if (!budget.last_stage_fits())
    return fmt::format(
        "skipped, budget: it takes about {:.1f} s, and of {:g} s there are {:.1f} s for it: the original "
        "stays",
        budget.expected_last_stage(), budget.total(), budget.left(Budget::Stage::last_stage));
  return {};
}

// The neighbours that run, as candidates of any search: compiled together, checked, kept in the trials. The
// others are null.
std::vector<std::optional<Contender>> build(const Algorithm& algorithm,
                                            std::vector<MicroTuning::Tried>& tried,
                                            const SearchContext& with) {
  std::vector<Way> to_compile;
  for (std::size_t i = 1; i < tried.size(); ++i)
    if (algorithm.compiles(tried[i].config)) to_compile.push_back({&algorithm, tried[i].config});
  CompileAhead(with.problem, with.device, to_compile).wait();
  std::vector<std::optional<Contender>> built(tried.size());
  for (std::size_t i = 1; i < tried.size() && !with.cancelled(); ++i) {
    Contender one = with.screening.attempt_once(algorithm, tried[i].config);
    tried[i].failure = one.failure;
    if (one.failure.empty()) built[i] = std::move(one);
  }
  return built;
}

// R6: the best of those that run against the original, which is the first of what was tried.
void measure(const Contender& winner, std::vector<std::optional<Contender>> built, LastStage& stage,
             const SearchContext& with) {
  std::vector<std::function<double()>> samplers = {with.bed.sampler(*winner.executable)};
  std::vector<std::size_t> places = {0};
  for (std::size_t i = 1; i < built.size(); ++i)
    if (built[i]) samplers.push_back(with.bed.sampler(*built[i]->executable)), places.push_back(i);
  MicroTuning& report = stage.report;
  std::string& verdict = report.verdicts.back();
  if (places.size() == 1) {
    verdict = "R6: no neighbour ran: the original stays";
    return;
  }
  if (with.cancelled()) return;
  const StageContest contest = stage_contest(
      samplers, std::max(with.min_gain, kLeastGain), with.cancelled, {},
      [&] { return with.budget.left(Budget::Stage::last_stage) <= 0; }, with.bed.witness());
  for (std::size_t i = 0; i < places.size(); ++i)
    report.tried[places[i]].time_us = contest.in_turns[i].median_us;
  const std::size_t best = places[contest.best];
  for (const ContestResult& held : contest.contests)
    report.contests.push_back({"original", report.tried[best].reason, held});
  verdict = fmt::format("R6: {} against the original: {}", report.tried[best].reason, contest.reason);
  if (!contest.accepted) return;
  stage.accepted = std::move(built[best]);
  stage.accepted->screen_us = report.tried[best].time_us;
  report.changed = true;
  report.kept = stage.accepted->text();
}

}  // namespace

StageList neighbours_of(const StageView& view, const Algorithm& algorithm, const Config& config,
                        const ConvProblem& problem, const DeviceInfo& device,
                        const std::optional<Target>& target) {
  const auto refusal = [&](const StageConfig& wanted) -> std::string {
    const Config other = view.with(wanted);
    if (!algorithm.accepts(problem, device, other)) return "is none of its configs here";
    const auto back = algorithm.stage_view(problem, device, other);
    if (!back || back->config != wanted) return "cannot be had";  // one less of what is kept full, say
    return {};
  };
  return micro_tuning(view.config, warps_answer(view, algorithm, config, problem, device, target),
                      view.parameters, refusal);
}

LastStage last_stage(const Contender& winner, const SearchContext& with) {
  with.tell("last stage", 1);
  LastStage stage;
  MicroTuning& report = stage.report;
  report.original = report.kept = winner.text();
  const auto view = winner.algorithm->stage_view(with.problem, with.device, winner.config);
  if (!view) {
    report.verdicts.push_back(
        fmt::format("no list: {} has no parameters that this stage may change", winner.algorithm->name()));
    return stage;
  }
  std::optional<Target> target;
  if (with.device.device.kind == Device::Kind::cuda && !view->warps)
    target = find_target(to_string(with.device.device));
  const StageList list =
      neighbours_of(*view, *winner.algorithm, winner.config, with.problem, with.device, target);
  report.verdicts = list.verdicts;
  if (const std::string why = why_not_measured(list, winner, with.budget); !why.empty()) {
    report.verdicts.back() = "R6: " + why;
    return stage;
  }
  for (const StageList::Entry& entry : list.configs)
    report.tried.push_back({view->with(entry.config),
                            fmt::format("{}: {}", to_string(entry.config, view->parameters), entry.reason),
                            0,
                            {}});
  measure(winner, build(*winner.algorithm, report.tried, with), stage, with);
  return stage;
}

}  // namespace convtune
