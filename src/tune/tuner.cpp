// tune(): candidates -> prune -> check -> screen -> last stage -> contest with the vendor -> record. Where a
// record is without proof, what its search has found goes straight into another contest. How the seconds are
// divided: budget.h.
#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "convtune/contest.h"
#include "measure/measure.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "record/trials.h"
#include "tune/batches.h"
#include "tune/budget.h"
#include "tune/compare.h"
#include "tune/last_stage.h"
#include "tune/proof.h"
#include "tune/screening.h"
#include "tune/stage_contest.h"
#include "tune/tuning_record.h"

namespace convtune {
namespace {

constexpr std::int64_t kSamples = 2048;  // output elements that the oracle computes for a check
constexpr double kNear = 1.3;            // what may turn out the fastest vendor, measured once
constexpr double kBoundMargin =
    1.2;  // the ceilings behind a bound are measured, too: not trusted to the last
constexpr std::size_t kFewestVendors = 4;  // of its ways, however small the budget
constexpr std::size_t kFinalists = 8;      // measured again in turns before one of them may challenge
constexpr double kFinalSeconds = 4, kContestSeconds = 10, kComparisonSeconds = 3;
// What a contest, and a table, may take however late it is: few microseconds are 40 rounds by then.
constexpr double kShortSeconds = 0.2;
constexpr int kFewestRounds = 5, kMostRounds = 400;           // of the final
constexpr double kPatienceShare = 0.1, kLeastPatience = 0.3;  // with the machine's pace
constexpr double kNeighbours = 5, kLastStageRuns = 250;       // of a last stage, at most as a rule

constexpr double kLeastCompile = 5, kMostCompile = 30;  // seconds that a candidate may be compiled

using Stage = Budget::Stage;

// One search, from the first candidate to the record.
class Tuning {
 public:
  Tuning(const Conv2dProblem& problem, Backend& backend, const std::vector<const Algorithm*>& algorithms,
         const TuneOptions& options, const std::function<double()>& now_seconds,
         const std::optional<Record>& unproven)
      : problem_(problem),
        device_(backend.info()),
        algorithms_(algorithms),
        options_(options),
        budget_(options.budget_seconds, now_seconds),
        trials_(open_trials()),
        undecided_(unproven ? unproven->undecided : 0),
        known_(unproven ? known() : std::vector<Contender>()),
        batches_(problem, device_, algorithms, rules()),
        ceilings_(measure_ceilings(device_.device)),
        bed_(problem, backend, TestData::real, 1, kSamples),
        screening_(
            problem, device_, bed_, trials_, options.save,
            std::clamp(kPatienceShare * options.budget_seconds, kLeastPatience, Pace::kPatienceSeconds)) {}

  TuningReport run() {
    list_vendors();
    batch_seconds_ = batches_.wait();  // from here on there is measuring
    screen_vendors(Stage::vendor, kFewestVendors);
    report_.candidates = static_cast<std::int64_t>(batches_.search().candidates().size());
    if (searched_before()) {
      screened_ = known_;
      report_.resumed = static_cast<std::int64_t>(known_.size());
    } else {
      search();
    }
    screen_vendors(Stage::search, 0);
    if (!cancelled()) elect();
    // Once, however often it is decided.
    if (!cancelled() && finalist_.algorithm && !searched_before()) tune_finely();
    if (!cancelled()) decide();
    if (!cancelled() && screening_.look("the contest was held again") != Pace::Change::none) decide();
    for (std::vector<std::string>* some : {&batches_.warnings, &screening_.warnings})
      for (std::string& warning : *some) report_.warnings.push_back(std::move(warning));
    if (cancelled()) {
      report_.interrupted = true;
      report_.comparison.problem = problem_;
      report_.comparison.device = device_;
      report_.comparison.decision =
          "interrupted: no decision, no record; the next tune resumes from the trials kept";
    } else if (options_.save) {
      record();
    }
    return std::move(report_);
  }

 private:
  TrialLog open_trials() const {
    TrialLog trials(Database().folder(), problem_, device_.fingerprint);
    if (options_.retune) trials.begin_anew(options_.save);
    return trials;
  }

  // What the search behind an unproven record has found of our own, and is there still.
  std::vector<Contender> known() const {
    std::vector<Contender> found;
    if (trials_.begun_anew()) return found;  // they are of another search, which was stopped
    for (const Trial& trial : trials_.results())
      for (const Algorithm* one : algorithms_)
        if (one->name() == trial.algorithm && !one->vendor() && one->source_hash() == trial.kernel_hash &&
            one->accepts(problem_, device_, trial.config))
          found.push_back({one, trial.config, nullptr, trial.max_error, {}, trial.time_us});
    return found;
  }

  // All that is left to do is the contest.
  bool searched_before() const { return !known_.empty(); }

  bool cancelled() const { return options_.cancel && options_.cancel->load(); }

  void tell(const char* stage, std::int64_t done, std::int64_t total, double eta_seconds) const {
    if (!options_.progress) return;
    const Contender* best = best_so_far();
    options_.progress(
        {stage, done, total, best ? best->screen_us : 0, best ? best->text() : std::string(), eta_seconds});
  }

  const Contender* best_so_far() const {
    const Contender* best = nullptr;
    for (const std::vector<Contender>* some : {&vendors_, &screened_})
      for (const Contender& one : *some)
        if (one.failure.empty() && (!best || one.screen_us < best->screen_us)) best = &one;
    return best;
  }

  void list_vendors() {
    for (const Algorithm* algorithm : algorithms_)
      if (algorithm->vendor() && algorithm->supports(problem_, device_))
        for (Config& config : algorithm->candidates(problem_, device_))
          vendor_ways_.emplace_back(algorithm, std::move(config));
  }

  // As many of the vendor's ways as the stage has time for, in the order of its heuristics.
  void screen_vendors(Stage stage, std::size_t fewest) {
    const auto late = budget_.late(stage);
    const std::size_t total = vendor_ways_.size();
    while (vendors_.size() < total && !cancelled() && (vendors_.size() < fewest || !late())) {
      const auto& [algorithm, config] = vendor_ways_[vendors_.size()];
      vendors_.push_back(screening_.attempt_vendor(*algorithm, config));
      if (const Contender& vendor = vendors_.back(); !vendor.failure.empty())
        report_.warnings.push_back(
            fmt::format("{} is out of the contest: {}", vendor.text(), vendor.failure));
      tell("vendor", static_cast<std::int64_t>(vendors_.size()), static_cast<std::int64_t>(total),
           budget_.left());
    }
  }

  static bool faster(const Contender* a, const Contender* b) { return a->screen_us < b->screen_us; }

  // Replaces screening times by medians of rounds in turns.
  void measure_again(const std::vector<Contender*>& contenders) {
    std::vector<Testbed::Timed> runs;
    for (const Contender* one : contenders) runs.push_back(bed_.prepare(*one->executable));
    std::vector<std::function<double()>> samplers;
    for (Testbed::Timed& run : runs) samplers.emplace_back([&run] { return run.sample_us(); });
    const auto results = measure_in_turns(
        samplers, kFinalSeconds, [&] { return cancelled(); }, kFewestRounds, kMostRounds,
        budget_.late(Stage::final));
    for (std::size_t i = 0; i < contenders.size(); ++i)
      if (results[i].n > 0) contenders[i]->screen_us = results[i].median_us;
  }

  // A batch is compiled, where that is needed, and then tried, all of it: trying is cheap beside it. It
  // begins only if there is time for another like the one before; the first always does.
  void search() {
    Search& search = batches_.search();
    const auto total = static_cast<std::int64_t>(search.candidates().size());
    double begun = budget_.spent() - batch_seconds_;
    for (std::int64_t done = 1; !cancelled() && trials_left() > 0; ++done) {
      if (batches_.empty() && done > 1) {
        batch_seconds_ = budget_.spent() - begun;
        expect_last_stage();
        if (budget_.left(Stage::search) <= batch_seconds_) break;
      }
      if (batches_.empty()) {
        begun = budget_.spent();
        batches_.compile(trials_left());
      }
      if (batches_.empty()) break;
      const std::size_t index = batches_.take();
      const auto [algorithm, config] = batches_.way(index);
      search.report(index, try_candidate(*algorithm, config, search.best_us()));
      keep_finalists_built();
      screening_.keep_pace(screened_, budget_.spent(), [this] { return cancelled(); });
      const double each = budget_.spent() / static_cast<double>(done);
      tell("screen", done, total, std::min(budget_.left(), each * static_cast<double>(total - done)));
    }
  }

  std::int64_t trials_left() const {
    return options_.budget_trials > 0 ? options_.budget_trials - report_.trials
                                      : std::numeric_limits<std::int64_t>::max();
  }

  // How the candidates are dealt. Asked for before there is a search.
  Batches::Rules rules() const {
    const double seconds = std::clamp(options_.budget_seconds, kLeastCompile, kMostCompile);
    return {seconds, searched_before() ? 0 : trials_left(),
            [this](const Algorithm& algorithm, const Config& config, double best_us) {
              return !hopeless(algorithm, config, best_us) &&
                     !trials_.find(std::string(algorithm.name()), config, algorithm.source_hash());
            }};
  }

  // Its neighbours as a batch like the last one, then picking and two contests.
  void expect_last_stage() {
    const double best_us = batches_.search().best_us();
    const double measuring = too_slow_for_contest(best_us).empty() ? kLastStageRuns * best_us * 1e-6 : 0;
    const double batches = std::max(1.0, kNeighbours / static_cast<double>(batches_.size()));
    budget_.expect_last_stage(batch_seconds_ * batches + measuring);
  }

  bool hopeless(const Algorithm& algorithm, const Config& config, double best_us) const {
    return best_us > 0 && algorithm.bound_us(problem_, device_, config, ceilings_) > kBoundMargin * best_us;
  }

  // Its screening time; nothing when it was pruned or is quarantined.
  std::optional<double> try_candidate(const Algorithm& algorithm, const Config& config, double best_us) {
    if (hopeless(algorithm, config, best_us)) {
      ++report_.pruned;
      return std::nullopt;
    }
    if (const Trial* known = trials_.find(std::string(algorithm.name()), config, algorithm.source_hash())) {
      ++report_.resumed;
      if (!known->failure.empty()) return std::nullopt;
      screened_.push_back({&algorithm, config, nullptr, known->max_error, {}, known->time_us});
      return known->time_us;
    }
    ++report_.trials;
    Contender one = screening_.attempt(algorithm, config, best_us);
    screening_.write_down(one, one.failure);
    if (!one.failure.empty()) {
      quarantined(one.text(), one.failure);
      return std::nullopt;
    }
    screened_.push_back(std::move(one));
    return screened_.back().screen_us;
  }

  // Hundreds of executables are not kept. Who is built again later was slower than these for a while.
  void keep_finalists_built() {
    std::vector<Contender*> built;
    for (Contender& one : screened_)
      if (one.executable) built.push_back(&one);
    if (built.size() <= kFinalists) return;
    (*std::max_element(built.begin(), built.end(), faster))->executable.reset();
  }

  void quarantined(const std::string& candidate, const std::string& failure) {
    ++report_.wrong;
    report_.warnings.push_back(fmt::format("{} was wrong and is quarantined: {}", candidate, failure));
  }

  // The fastest of the best few, ours and the vendor's, measured again in turns: a lucky sample wins no place
  // in the contest. Who is near the fastest vendor may be the fastest: the promise is against the best of
  // them.
  void elect() {
    std::vector<Contender*> near, ours;
    for (Contender& vendor : vendors_)
      if (vendor.failure.empty() && (near.empty() || faster(&vendor, near.front()))) near.assign({&vendor});
    for (Contender& vendor : vendors_)
      if (vendor.failure.empty() && &vendor != near.front() &&
          vendor.screen_us <= kNear * near.front()->screen_us)
        near.push_back(&vendor);
    std::sort(screened_.begin(), screened_.end(),
              [](const Contender& a, const Contender& b) { return a.screen_us < b.screen_us; });
    for (Contender& one : screened_) {
      if (ours.size() == kFinalists || cancelled()) break;
      if (!one.executable) {
        Contender built = contender(*one.algorithm, one.config, problem_, device_, bed_);
        built.screen_us = one.screen_us;
        one = std::move(built);
      }
      if (one.failure.empty()) ours.push_back(&one);
    }
    tell("final", 0, static_cast<std::int64_t>(near.size() + ours.size()), budget_.left());
    if (near.size() > 1 || ours.size() > 1) {
      std::vector<Contender*> all = near;
      all.insert(all.end(), ours.begin(), ours.end());
      measure_again(all);
    }
    std::sort(near.begin(), near.end(), faster);
    std::sort(ours.begin(), ours.end(), faster);
    if (!near.empty()) incumbent_ = near[0];
    if (!ours.empty()) finalist_ = *ours[0];
    if (ours.size() > 1) runner_up_ = *ours[1];
  }

  // The finalist, or one of its neighbours that is proven better.
  void tune_finely() {
    tell("last stage", 0, 1, budget_.left());
    LastStage stage = last_stage(finalist_, problem_, device_, bed_, screening_, options_.min_gain, budget_,
                                 [this] { return cancelled(); });
    for (const MicroTuning::Tried& one : stage.report.tried)
      if (!one.failure.empty())
        quarantined(fmt::format("{} {}", finalist_.algorithm->name(), to_string(one.config)), one.failure);
    if (stage.accepted) {
      runner_up_ = finalist_;
      finalist_ = *stage.accepted;
    }
    report_.last_stage = std::move(stage.report);
  }

  void decide() {
    const bool challenged = finalist_.algorithm != nullptr;
    undecided_in_a_row_ = 0;
    if (!challenged && !incumbent_) {
      settle_for_reference();
    } else if (!incumbent_) {
      chosen_ = finalist_;
      decision_ = screening_.left_out.empty()
                      ? "no vendor library can run this problem here: the fastest of our own is chosen"
                      : "no way of the vendor's was tried: the fastest of our own is chosen";
    } else if (!challenged) {
      chosen_ = *incumbent_;
      decision_ = "no algorithm of our own was tried successfully: the vendor stays";
    } else {
      tell("contest", 0, 1, budget_.left());
      Testbed::Timed incumbent = bed_.prepare(*incumbent_->executable),
                     challenger = bed_.prepare(*finalist_.executable);
      ContestOptions rules;
      rules.min_gain = options_.min_gain;
      rules.max_seconds = kContestSeconds;
      rules.cancelled = [&] { return cancelled(); };
      rules.late = late_after(budget_.spent() + std::max(budget_.left(), kShortSeconds));
      const ContestResult result =
          contest([&] { return incumbent.sample_us(); }, [&] { return challenger.sample_us(); },
                  once_more(rules, undecided_));
      chosen_ = result.accepted || result.leans_to_challenger ? finalist_ : *incumbent_;
      decision_ = outcome(result, finalist_.text(), incumbent_->text(), chosen_.text());
      if (result.undecided) undecided_in_a_row_ = undecided_ + 1;
    }
    if (!screening_.left_out.empty())
      decision_ += fmt::format("; without proof, since {} had no part in it: a later tune tries {} again",
                               listed(screening_.left_out), screening_.left_out.size() == 1 ? "it" : "them");
    screening_.ask_for_slowdown("the contest");
    if (const std::size_t untried = vendor_ways_.size() - vendors_.size(); untried > 0)
      decision_ +=
          fmt::format("; {} of the vendor's {} ways were not tried, budget", untried, vendor_ways_.size());
    if (cancelled()) return;
    tell("measure", 0, 1, budget_.left());
    report_.comparison = measure_comparison(
        problem_, device_, chosen_, vendors_, bed_, kComparisonSeconds, [&] { return cancelled(); },
        [short_of = late_after(budget_.spent() + kShortSeconds), late = budget_.late(Stage::verdict)] {
          return late() && short_of();
        });
    const std::string better = better_than_incumbent(
        report_.comparison, incumbent_ ? incumbent_->text() : std::string(), options_.min_gain);
    if (!better.empty()) {
      undecided_in_a_row_ = undecided_ + 1;
      decision_ += fmt::format(
          "; without proof, since {} was faster afterwards: the next tune holds the contest again", better);
    }
    report_.proven = undecided_in_a_row_ == 0 && screening_.left_out.empty();
    report_.comparison.plan = {std::string(chosen_.algorithm->name()), chosen_.config,
                               report_.proven ? PlanSource::tuned : PlanSource::unproven, decision_};
    report_.comparison.decision = decision_;
  }

  std::function<bool()> late_after(double spent_seconds) const {
    return [this, spent_seconds] { return budget_.spent() >= spent_seconds; };
  }

  void settle_for_reference() {
    const Plan plan = choose(problem_, device_);
    chosen_ =
        contender(find_algorithm(device_.device.kind, plan.algorithm), plan.config, problem_, device_, bed_);
    if (!chosen_.failure.empty())
      throw Error(ErrorKind::unsupported,
                  fmt::format("nothing here runs {} rightly: {}", to_string(problem_), chosen_.failure));
    decision_ = "no fast algorithm can run this problem here";
  }

  void record() {
    Record record = record_of(report_.comparison, chosen_.algorithm->source_hash());
    if (runner_up_.algorithm) {
      record.runner_up = runner_up_.text();
      record.runner_up_us = runner_up_.screen_us;
    }
    record.undecided = undecided_in_a_row_;
    record.left_out = listed(screening_.left_out);
    try {
      const Database database;
      database.store(record);
      report_.record = database.path_of(problem_, device_.fingerprint).string();
      trials_.finish(report_.proven);
    } catch (const Error& error) {
      report_.not_recorded = error.what();
    }
  }

  // In the order in which they begin: the first batch compiles while the ceilings are measured, by
  // what takes milliseconds, tensors are made and cuDNN is asked.
  const Conv2dProblem problem_;
  const DeviceInfo device_;
  const std::vector<const Algorithm*>& algorithms_;
  const TuneOptions& options_;
  Budget budget_;
  TrialLog trials_;
  const std::int64_t undecided_;  // contests in a row, before this one
  const std::vector<Contender> known_;
  TuningReport report_;
  Batches batches_;
  double batch_seconds_ = 0;  // what the last one took, compiled and tried
  const Ceilings ceilings_;
  Testbed bed_;
  Screening screening_;
  std::vector<Batches::Way> vendor_ways_;
  std::vector<Contender> vendors_, screened_;  // the first so many of the ways; and ours
  const Contender* incumbent_ = nullptr;       // of vendors_
  Contender finalist_, runner_up_, chosen_;
  std::string decision_;
  std::int64_t undecided_in_a_row_ = 0;  // with this one
};

}  // namespace

TuningReport tune_on(Backend& backend, const std::vector<const Algorithm*>& algorithms,
                     const Conv2dProblem& resolved, const TuneOptions& options,
                     const std::function<double()>& now_seconds, const std::optional<Record>& unproven) {
  return Tuning(resolved, backend, algorithms, options, now_seconds, unproven).run();
}

TuningReport tune(const Conv2dProblem& problem, Device device, const TuneOptions& options) {
  Backend& on = backend(device);
  const Conv2dProblem resolved = resolve(problem, on);
  if (resolved.n == 0)
    throw Error(ErrorKind::invalid_argument, "a batch of 0 has nothing to tune: " + to_string(resolved));
  if (!(options.min_gain >= 0 && options.min_gain < 1))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("min_gain must lie in [0, 1), not {}", options.min_gain));
  constexpr double kWeek = 7 * 86400;
  if (!(options.budget_seconds >= 0 && options.budget_seconds <= kWeek))  // so written, it refuses NaN too
    throw Error(ErrorKind::invalid_argument,
                fmt::format("budget_seconds must lie in [0, {}], not {}", kWeek, options.budget_seconds));
  if (options.budget_trials < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("budget_trials must be 0 or more, not {}", options.budget_trials));
  std::optional<Record> record;
  if (!options.retune) record = find_record(resolved, on.info());
  if (record && record->proven()) return report_of(*record, resolved, on.info());
  return tune_on(on, algorithms(device.kind), resolved, options, {}, record);
}

}  // namespace convtune
