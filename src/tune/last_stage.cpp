// See last_stage.h; what was decided beside the rules: docs/decisions/0010-last-stage-of-tune.md.
#include "tune/last_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/backend/cuda.h"
#include "cuda/launch/compile_ahead.h"
#include "cuda/launch/dry_run.h"
#include "tune/stage_contest.h"

namespace convtune {
namespace {

constexpr double kLeastGain = 0.01;  // a smaller one is not worth a config that nobody searched for
constexpr double kCompileSeconds = 30;

// What the compiler says of the winner, which it has compiled before.
OccupancyEvidence evidence_of(const Algorithm& algorithm, const Config& config, const Conv2dProblem& problem,
                              const DeviceInfo& device) {
  OccupancyEvidence evidence;
  const cuda::DryRun run = cuda::dry_run(problem, device, {{&algorithm, config}}, 1, kCompileSeconds).front();
  if (run.failure.empty())
    evidence.registers = run.launch.registers, evidence.smem_bytes = run.launch.smem_bytes;
  return evidence;
}

WarpsAnswer warps_answer(const StageView& view, const Algorithm& algorithm, const Config& config,
                         const Conv2dProblem& problem, const DeviceInfo& device,
                         const std::optional<Target>& target) {
  if (view.warps) return *view.warps;
  if (!target)
    return {{},
            fmt::format("{} stays {}: nothing is known of the occupancy", view.parameters.warps_name,
                        view.config.warps)};
  return suggested_warps(view.config.warps, evidence_of(algorithm, config, problem, device), *target,
                         view.parameters);
}

class Stage {
 public:
  Stage(const Contender& winner, const Conv2dProblem& problem, const DeviceInfo& device, Testbed& bed,
        Screening& screening, const Budget& budget, const std::function<bool()>& cancelled)
      : winner_(winner),
        problem_(problem),
        device_(device),
        bed_(bed),
        screening_(screening),
        budget_(budget),
        cancelled_(cancelled) {
    stage_.report.original = stage_.report.kept = winner.text();
  }

  LastStage run(double min_gain) {
    MicroTuning& report = stage_.report;
    const auto view = winner_.algorithm->stage_view(problem_, device_, winner_.config);
    if (!view) {
      report.verdicts.push_back(
          fmt::format("no list: {} has no parameters that this stage may change", winner_.algorithm->name()));
      return std::move(stage_);
    }
    std::optional<Target> target;
    if (device_.device.kind == Device::Kind::cuda && !view->warps)
      target = cuda::device_target(device_.device);
    const StageList list =
        neighbours_of(*view, *winner_.algorithm, winner_.config, problem_, device_, target);
    report.verdicts = list.verdicts;
    if (list.configs.empty()) return verdict("not measured: there is no list");
    if (const std::string slow = too_slow_for_contest(winner_.screen_us); !slow.empty())
      return verdict(fmt::format("not measured: {}: the original stays", slow));
    if (!budget_.last_stage_fits())
      return verdict(fmt::format(
          "skipped, budget: it takes about {:.1f} s, and of {:g} s there are {:.1f} s for it: the original "
          "stays",
          budget_.expected_last_stage(), budget_.total(), budget_.left(Budget::Stage::last_stage)));
    for (const StageList::Entry& entry : list.configs)
      report.tried.push_back({view->with(entry.config),
                              fmt::format("{}: {}", to_string(entry.config, view->parameters), entry.reason),
                              0,
                              {}});
    build_neighbours();
    if (contenders_.empty()) return verdict("no neighbour ran: the original stays");
    if (!cancelled_()) measure(std::max(min_gain, kLeastGain));
    return std::move(stage_);
  }

 private:
  LastStage verdict(const std::string& r6) {
    stage_.report.verdicts.back() = "R6: " + r6;
    return std::move(stage_);
  }

  void build_neighbours() {
    std::vector<MicroTuning::Tried>& tried = stage_.report.tried;
    std::vector<cuda::Candidate> to_compile;
    for (std::size_t i = 1; i < tried.size(); ++i)
      if (winner_.algorithm->compiles(tried[i].config))
        to_compile.push_back({winner_.algorithm, tried[i].config});
    cuda::CompileAhead(problem_, device_, to_compile).wait();
    for (std::size_t i = 1; i < tried.size() && !cancelled_(); ++i) {
      Contender one = screening_.attempt_once(*winner_.algorithm, tried[i].config);
      tried[i].failure = one.failure;
      if (!one.failure.empty()) continue;
      contenders_.push_back(std::move(one));
      places_.push_back(i);
    }
  }

  void measure(double min_gain) {
    std::vector<Testbed::Timed> runs = {bed_.prepare(*winner_.executable)};
    for (const Contender& one : contenders_) runs.push_back(bed_.prepare(*one.executable));
    std::vector<std::function<double()>> samplers;
    for (Testbed::Timed& run : runs) samplers.emplace_back([&run] { return run.sample_us(); });
    const StageContest contest = stage_contest(
        samplers, min_gain, cancelled_, {}, [this] { return budget_.left(Budget::Stage::last_stage) <= 0; });
    MicroTuning& report = stage_.report;
    report.tried[0].time_us = contest.in_turns[0].median_us;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      report.tried[places_[i]].time_us = contest.in_turns[i + 1].median_us;
      contenders_[i].screen_us = contest.in_turns[i + 1].median_us;
    }
    const Contender& best = contenders_[contest.best - 1];
    report.verdicts.back() = fmt::format("R6: {} against the original: {}",
                                         report.tried[places_[contest.best - 1]].reason, contest.reason);
    if (!contest.accepted) return;
    report.changed = true;
    report.kept = best.text();
    stage_.accepted = best;
  }

  const Contender& winner_;
  const Conv2dProblem& problem_;
  const DeviceInfo& device_;
  Testbed& bed_;
  Screening& screening_;
  const Budget& budget_;
  const std::function<bool()>& cancelled_;
  std::vector<Contender> contenders_;  // that ran
  std::vector<std::size_t> places_;    // theirs among what was tried
  LastStage stage_;
};

}  // namespace

StageList neighbours_of(const StageView& view, const Algorithm& algorithm, const Config& config,
                        const Conv2dProblem& problem, const DeviceInfo& device,
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

LastStage last_stage(const Contender& winner, const Conv2dProblem& problem, const DeviceInfo& device,
                     Testbed& bed, Screening& screening, double min_gain, const Budget& budget,
                     const std::function<bool()>& cancelled) {
  return Stage(winner, problem, device, bed, screening, budget, cancelled).run(min_gain);
}

}  // namespace convtune
