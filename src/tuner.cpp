// tune(): candidates -> prune -> check -> screen -> last stage -> contest with the vendor -> record.
#include "convtune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "algorithms.h"
#include "compare.h"
#include "contest.h"
#include "last_stage.h"
#include "measure.h"
#include "planner.h"
#include "screening.h"
#include "search.h"
#include "trials.h"
#include "tuning_record.h"

namespace convtune {
namespace {

constexpr std::int64_t kSamples = 2048;  // output elements that the oracle computes for a check
constexpr double kNear = 1.3;            // what may turn out the fastest vendor, measured once
constexpr double kBoundMargin =
    1.2;  // the ceilings behind a bound are measured, too: not trusted to the last
constexpr std::int64_t kMostCompiledAtOnce = 16;
constexpr std::size_t kFinalists = 8;  // measured again in turns before one of them may challenge
constexpr double kFinalistSeconds = 4;
constexpr double kLastStageSeconds = 3;
constexpr double kContestSeconds = 10;
constexpr double kComparisonSeconds = 3;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// One call of tune(), from the first candidate to the record.
class Tuning {
 public:
  Tuning(const Conv2dProblem& problem, Backend& backend, const TuneOptions& options)
      : problem_(problem),
        device_(backend.info()),
        options_(options),
        ceilings_(measure_ceilings(device_.device)),
        bed_(problem, backend, TestData::real, 1, kSamples),
        trials_(Database().folder(), problem, device_.fingerprint),
        screening_(problem, device_, bed_, trials_, options.save) {}

  TuningReport run() {
    screen_vendors();
    search();
    if (!cancelled()) elect_finalist();
    if (!cancelled() && finalist_.algorithm) tune_finely();  // once, however often it is decided
    if (!cancelled()) decide();
    if (!cancelled() && screening_.look("the contest was held again") != Pace::Change::none) decide();
    for (std::string& warning : screening_.warnings) report_.warnings.push_back(std::move(warning));
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
  bool cancelled() const { return options_.cancel && options_.cancel->load(); }

  void tell(const char* stage, std::int64_t done, std::int64_t total, double eta_seconds) const {
    if (!options_.progress) return;
    const Contender* best = best_so_far();
    options_.progress(
        {stage, done, total, best ? best->screen_us : 0, best ? best->text() : std::string(), eta_seconds});
  }

  const Contender* best_so_far() const {
    const Contender* best = incumbent_;
    for (const Contender& one : screened_)
      if (!best || one.screen_us < best->screen_us) best = &one;
    return best;
  }

  void screen_vendors() {
    for (const Algorithm* algorithm : algorithms(device_.device.kind))
      if (algorithm->vendor() && algorithm->supports(problem_, device_))
        for (const Config& config : algorithm->candidates(problem_, device_))
          vendors_.push_back(screening_.attempt_vendor(*algorithm, config));
    for (const Contender& vendor : vendors_) {
      if (!vendor.failure.empty())
        report_.warnings.push_back(
            fmt::format("{} is out of the contest: {}", vendor.text(), vendor.failure));
      else if (!incumbent_ || vendor.screen_us < incumbent_->screen_us)
        incumbent_ = &vendor;
    }
    // Whoever is near the fastest may be the fastest: the promise is against the best of them.
    std::vector<Contender*> near;
    for (Contender& vendor : vendors_)
      if (vendor.failure.empty() && vendor.screen_us <= kNear * incumbent_->screen_us)
        near.push_back(&vendor);
    if (near.size() < 2) return;
    measure_again(near);
    incumbent_ = *std::min_element(near.begin(), near.end(), faster);
  }

  static bool faster(const Contender* a, const Contender* b) { return a->screen_us < b->screen_us; }

  // Replaces screening times by medians of rounds in turns.
  void measure_again(const std::vector<Contender*>& contenders) {
    std::vector<Testbed::Timed> runs;
    for (const Contender* one : contenders) runs.push_back(bed_.prepare(*one->executable));
    std::vector<std::function<double()>> samplers;
    for (Testbed::Timed& run : runs) samplers.emplace_back([&run] { return run.sample_us(); });
    const auto results = measure_in_turns(samplers, kFinalistSeconds, [&] { return cancelled(); });
    for (std::size_t i = 0; i < contenders.size(); ++i)
      if (results[i].n > 0) contenders[i]->screen_us = results[i].median_us;
  }

  // The first of every algorithm, then the second of each: the first guesses are guesses at all of them.
  std::vector<Candidate> all_candidates() const {
    std::vector<std::vector<Candidate>> of_each;
    std::size_t most = 0;
    for (const Algorithm* algorithm : algorithms(device_.device.kind)) {
      if (algorithm->vendor() || algorithm->reference() || !algorithm->supports(problem_, device_)) continue;
      std::vector<Candidate>& own = of_each.emplace_back();
      for (Config& config : algorithm->candidates(problem_, device_))
        own.push_back({std::string(algorithm->name()), std::move(config)});
      most = std::max(most, own.size());
    }
    std::vector<Candidate> all;
    for (std::size_t i = 0; i < most; ++i)
      for (std::vector<Candidate>& own : of_each)
        if (i < own.size()) all.push_back(std::move(own[i]));
    return all;
  }

  void search() {
    const Stopwatch watch;
    Search search(all_candidates());
    const auto total = static_cast<std::int64_t>(search.candidates().size());
    // Compiled, where that is needed, and to be tried in this order: all of them, even if compiling took all
    // of the budget, since trying is cheap beside it.
    std::deque<std::size_t> next;
    for (std::int64_t done = 1;
         !cancelled() && (!next.empty() || watch.seconds() < options_.budget_seconds) &&
         (options_.budget_trials == 0 || report_.trials < options_.budget_trials);
         ++done) {
      if (next.empty()) next = compile_some(search);
      if (next.empty()) break;
      const std::size_t index = next.front();
      next.pop_front();
      search.report(index, try_candidate(search.candidates()[index], search.best_us()));
      screening_.keep_pace(screened_, watch.seconds(), [this] { return cancelled(); });
      const double elapsed = watch.seconds(), each = elapsed / static_cast<double>(done);
      tell("screen", done, total,
           std::min(std::max(options_.budget_seconds - elapsed, 0.0),
                    each * static_cast<double>(total - done)));
    }
  }

  // What the search wants next: on a GPU as many as compile well at once, one for each processor that is more
  // than a second thread of another. The search hears of their times a little later for it.
  std::deque<std::size_t> compile_some(Search& search) {
    std::int64_t count = 1;
    if (device_.device.kind == Device::Kind::cuda)
      count = std::clamp<std::int64_t>(std::thread::hardware_concurrency() / 2, 1, kMostCompiledAtOnce);
    if (options_.budget_trials > 0) count = std::min(count, options_.budget_trials - report_.trials);
    std::deque<std::size_t> some;
    std::vector<std::pair<const Algorithm*, Config>> untried;
    while (static_cast<std::int64_t>(some.size()) < count) {
      const auto index = search.next();
      if (!index) break;
      some.push_back(*index);
      const Candidate& candidate = search.candidates()[*index];
      const Algorithm& algorithm = find_algorithm(device_.device.kind, candidate.algorithm);
      if (!hopeless(algorithm, candidate.config, search.best_us()) &&
          !trials_.find(candidate.algorithm, candidate.config, algorithm.source_hash()))
        untried.emplace_back(&algorithm, candidate.config);
    }
    if (untried.size() > 1) screening_.compile(untried);
    return some;
  }

  bool hopeless(const Algorithm& algorithm, const Config& config, double best_us) const {
    return best_us > 0 && algorithm.bound_us(problem_, device_, config, ceilings_) > kBoundMargin * best_us;
  }

  // Its screening time; nothing when it was pruned or is quarantined.
  std::optional<double> try_candidate(const Candidate& candidate, double best_us) {
    const Algorithm& algorithm = find_algorithm(device_.device.kind, candidate.algorithm);
    if (hopeless(algorithm, candidate.config, best_us)) {
      ++report_.pruned;
      return std::nullopt;
    }
    const std::string hash = algorithm.source_hash();
    if (const Trial* known = trials_.find(candidate.algorithm, candidate.config, hash)) {
      ++report_.resumed;
      if (!known->failure.empty()) return std::nullopt;
      screened_.push_back({&algorithm, candidate.config, nullptr, known->max_error, {}, known->time_us});
      return known->time_us;
    }
    ++report_.trials;
    Contender one = screening_.attempt(algorithm, candidate.config, best_us);
    screening_.write_down(one, one.failure);
    if (!one.failure.empty()) {
      quarantined(one.text(), one.failure);
      return std::nullopt;
    }
    one.executable.reset();  // built again if it reaches the final: hundreds are not kept
    screened_.push_back(std::move(one));
    return screened_.back().screen_us;
  }

  void quarantined(const std::string& candidate, const std::string& failure) {
    ++report_.wrong;
    report_.warnings.push_back(fmt::format("{} was wrong and is quarantined: {}", candidate, failure));
  }

  // The fastest of the best few, measured again in turns: a lucky sample wins no place in the contest.
  void elect_finalist() {
    std::sort(screened_.begin(), screened_.end(),
              [](const Contender& a, const Contender& b) { return a.screen_us < b.screen_us; });
    std::vector<Contender> finalists;
    for (const Contender& one : screened_) {
      if (finalists.size() == kFinalists || cancelled()) break;
      Contender built = contender(*one.algorithm, one.config, problem_, device_, bed_);
      built.screen_us = one.screen_us;
      if (built.failure.empty()) finalists.push_back(std::move(built));
    }
    if (finalists.empty()) return;
    tell("final", 0, static_cast<std::int64_t>(finalists.size()),
         kFinalistSeconds + kLastStageSeconds + kContestSeconds + kComparisonSeconds);
    std::vector<Contender*> ranking;
    for (Contender& one : finalists) ranking.push_back(&one);
    measure_again(ranking);
    std::sort(ranking.begin(), ranking.end(), faster);
    finalist_ = *ranking[0];
    if (ranking.size() > 1) runner_up_ = *ranking[1];
  }

  // The finalist, or one of its neighbours that is proven better.
  void tune_finely() {
    tell("last stage", 0, 1, kLastStageSeconds + kContestSeconds + kComparisonSeconds);
    LastStage stage = last_stage(finalist_, problem_, device_, bed_, screening_, options_.min_gain,
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
    if (!challenged && !incumbent_) {
      settle_for_reference();
    } else if (!incumbent_) {
      chosen_ = finalist_;
      decision_ = "no vendor library can run this problem here: the fastest of our own is chosen";
    } else if (!challenged) {
      chosen_ = *incumbent_;
      decision_ = "no algorithm of our own was tried successfully: the vendor stays";
    } else {
      tell("contest", 0, 1, kContestSeconds + kComparisonSeconds);
      Testbed::Timed incumbent = bed_.prepare(*incumbent_->executable),
                     challenger = bed_.prepare(*finalist_.executable);
      ContestOptions rules;
      rules.min_gain = options_.min_gain;
      rules.max_seconds = kContestSeconds;
      rules.cancelled = [&] { return cancelled(); };
      const ContestResult result =
          contest([&] { return incumbent.sample_us(); }, [&] { return challenger.sample_us(); }, rules);
      chosen_ = result.accepted ? finalist_ : *incumbent_;
      decision_ = fmt::format("{} against {}: {}", finalist_.text(), incumbent_->text(), result.reason);
    }
    if (cancelled()) return;
    tell("measure", 0, 1, kComparisonSeconds);
    report_.comparison = measure_comparison(problem_, device_, chosen_, vendors_, bed_, kComparisonSeconds,
                                            [&] { return cancelled(); });
    report_.comparison.plan = {std::string(chosen_.algorithm->name()), chosen_.config, PlanSource::tuned,
                               decision_};
    report_.comparison.decision = decision_;
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
    try {
      Database().store(record);
      trials_.finish();
    } catch (const Error& error) {
      report_.warnings.push_back(fmt::format("the result is not recorded: {}", error.what()));
    }
  }

  const Conv2dProblem problem_;
  const DeviceInfo device_;
  const TuneOptions& options_;
  const Ceilings ceilings_;
  Testbed bed_;
  TrialLog trials_;
  Screening screening_;
  TuningReport report_;
  std::vector<Contender> vendors_, screened_;
  const Contender* incumbent_ = nullptr;  // of vendors_
  Contender finalist_, runner_up_, chosen_;
  std::string decision_;
};

}  // namespace

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
  if (!options.retune)
    if (const auto record = find_record(resolved, on.info())) return report_of(*record, resolved, on.info());
  return Tuning(resolved, on, options).run();
}

}  // namespace convtune
