// tune(): candidates -> prune -> check -> screen -> last stage -> contest with the vendor -> record. Where a
// record is without proof, what its search has found goes straight into another contest, as long as the
// kernels are the same. How the seconds are divided: budget.h.
#include "tune/tune_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "plan/algorithms.h"
#include "plan/kernel_compiler.h"
#include "record/trials.h"
#include "tune/batches.h"
#include "tune/behind_a_line.h"
#include "tune/budget.h"
#include "tune/decision.h"
#include "tune/election.h"
#include "tune/last_stage.h"
#include "tune/screening.h"
#include "tune/small_batch.h"
#include "tune/stage_contest.h"
#include "tune/tuning_record.h"

namespace convtune {
namespace {

constexpr std::int64_t kCheckedOutputs = 2048;  // output elements that the oracle computes for a check
constexpr std::size_t kFewestVendors = 4;       // of its ways, however small the budget
constexpr double kPatienceShare = 0.1, kLeastPatience = 0.3;  // with a clock that drifts
constexpr double kRunsOfACandidate = 2.5, kWholeShare = 0.4;  // its check and samples; of the seconds left
constexpr double kNeighbours = 5, kLastStageRuns = 250;       // of a last stage, at most as a rule
constexpr double kLeastCompile = 5, kMostCompile = 30;        // seconds that a candidate may be compiled

using Stage = Budget::Stage;

// One search, from the first candidate to the record.
class Tuning {
 public:
  Tuning(const ConvProblem& problem, Backend& backend, const std::vector<const Algorithm*>& algorithms,
         const TuneOptions& options, const std::function<double()>& now_seconds,
         const std::optional<Record>& unproven)
      : problem_(problem),
        backend_(backend),
        device_(backend.info()),
        algorithms_(algorithms),
        options_(options),
        budget_(options.budget_seconds, now_seconds),
        trials_(open_trials()),
        undecided_(unproven ? unproven->undecided : 0),
        known_(unproven && unproven->searched == kernels() ? known() : std::vector<Contender>()),
        batches_(problem, device_, algorithms, rules()),
        ceilings_(measure_ceilings(device_.device)),
        bed_(problem, backend, TestData::real, 1, affordable_samples(problem, kCheckedOutputs)),
        screening_(
            problem, device_, bed_, trials_, options.save,
            std::clamp(kPatienceShare * options.budget_seconds, kLeastPatience, Screening::kMostPatience)) {}

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
    if (!cancelled()) elected_ = elect(vendors_, screened_, with_);
    if (!cancelled() && elected_.finalist.algorithm && !searched_before()) tune_finely();
    Decision decision;
    if (!cancelled()) decision = decide(elected_, vendors_, vendor_ways_.size(), undecided_, with_);
    for (std::vector<std::string>* some : {&batches_.warnings, &screening_.warnings})
      for (std::string& warning : *some) report_.warnings.push_back(std::move(warning));
    if (cancelled()) {
      report_.interrupted = true;
      report_.comparison.problem = problem_;
      report_.comparison.device = device_;
      report_.comparison.decision =
          "interrupted: no decision, no record; the next tune resumes from the trials kept";
    } else {
      decision.comparison.decision += told_behind_a_line(decision.chosen, with_);
      report_.comparison = decision.comparison, report_.proven = decision.proven;
      if (machine_is_busy(report_.comparison))
        report_.warnings.push_back("the machine is busy: " + interruptions(report_.comparison));
      report_.contest = std::move(decision.contest);
      if (options_.save) record(decision);
    }
    return std::move(report_);
  }

 private:
  TrialLog open_trials() const {
    TrialLog trials(Database().folder(), problem_, device_.fingerprint);
    if (options_.retune) trials.begin_anew(options_.save);
    return trials;
  }

  // All that a search chooses from: our algorithms for this problem, and the hashes of their sources.
  std::string kernels() const {
    std::vector<std::string> names;
    for (const Algorithm* one : algorithms_)
      if (!one->vendor() && !one->reference() && one->supports(problem_, device_))
        names.push_back(fmt::format("{} {}", one->name(), one->source_hash()));
    return listed(names);
  }

  // Returns the best config of our own that the search behind an unproven record found, if it still exists.
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
    if (const std::string library = unloadable_vendor_library(device_.device.kind); !library.empty())
      screening_.left_out.push_back(library + ", which is installed and could not be loaded,");
  }

  // As many of the vendor's ways as the stage has time for, in the order of its heuristics.
  void screen_vendors(Stage stage, std::size_t fewest) {
    const auto late = budget_.late(stage);
    const std::size_t total = vendor_ways_.size();
    while (vendors_.size() < total && !cancelled() && (vendors_.size() < fewest || !late())) {
      const auto& [algorithm, config] = vendor_ways_[vendors_.size()];
      vendors_.push_back(screening_.attempt_vendor(*algorithm, config));
      tell_step(vendors_.back(), false);
      if (const Contender& vendor = vendors_.back(); !vendor.failure.empty())
        report_.warnings.push_back(
            fmt::format("{} is out of the contest: {}", vendor.text(), vendor.failure));
      tell("vendor", static_cast<std::int64_t>(vendors_.size()), static_cast<std::int64_t>(total),
           budget_.left());
    }
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
      if (done == 1) {
        budget_.expect_run(1e-6 * best_so_far_us());
        if (search_small()) break;
      }
      const double each = budget_.spent() / static_cast<double>(done);
      tell("screen", done, total, std::min(budget_.left(), each * static_cast<double>(total - done)));
    }
  }

  double best_so_far_us() const {
    const Contender* best = best_so_far();
    return best ? best->screen_us : 0;
  }

  // Tries candidates on a few images, and the fastest of them on the whole batch, if there is no time to try
  // all on it. Returns false if there is, or if the problem has few images itself.
  bool search_small() {
    const double candidate_seconds = kRunsOfACandidate * 1e-6 * best_so_far_us();
    const double left = budget_.left(Stage::search);
    const std::int64_t images = SmallBatch::images_for(problem_, device_);
    if (images == 0 || options_.budget_trials > 0 || cancelled() ||
        candidate_seconds * static_cast<double>(report_.candidates) <= left)
      return false;
    const double share = std::min(kWholeShare * left, static_cast<double>(kFinalists) * candidate_seconds);
    const auto few = static_cast<std::size_t>(std::max(1.0, share / std::max(candidate_seconds, 1e-9)));
    SmallBatch small(problem_, images, backend_, ceilings_, options_.save, options_.retune);
    const auto places = small.fastest(
        batches_, few, [&] { return budget_.left(Stage::search) <= share; },
        [&] {
          tell("screen", small.tried(), report_.candidates, budget_.left());
          return cancelled();
        });
    report_.small_batch = images, report_.small_trials = small.tried();
    report_.wrong += std::ssize(small.failures);
    for (std::string& failure : small.failures) report_.warnings.push_back(std::move(failure));
    for (const std::size_t place : places) {
      const auto [algorithm, config] = batches_.way(place);
      if (cancelled() || (place != places.front() && budget_.left(Stage::search) <= candidate_seconds)) break;
      if (is_screened(*algorithm, config)) continue;
      batches_.search().report(place, try_candidate(*algorithm, config, batches_.search().best_us()));
      keep_finalists_built();
    }
    if (!cancelled()) small.finish();
    return true;
  }

  bool is_screened(const Algorithm& algorithm, const Config& config) const {
    return std::ranges::any_of(
        screened_, [&](const Contender& one) { return one.algorithm == &algorithm && one.config == config; });
  }

  std::int64_t trials_left() const {
    return options_.budget_trials > 0 ? options_.budget_trials - report_.trials
                                      : std::numeric_limits<std::int64_t>::max();
  }

  // Returns the rules by which candidates are dealt. They are asked for before there is a search.
  Batches::Rules rules() const {
    const double seconds = std::clamp(options_.budget_seconds, kLeastCompile, kMostCompile);
    return {seconds, searched_before() ? 0 : trials_left(),
            [this](const Algorithm& algorithm, const Config& config, double best_us) {
              return !hopeless(algorithm, config, problem_, device_, ceilings_, best_us) &&
                     !trials_.find(std::string(algorithm.name()), config, algorithm.source_hash());
            }};
  }

  // Tells the budget how long the last stage will take: the best config's neighbours as a batch like the last
  // one, then picking and two contests.
  void expect_last_stage() {
    const double best_us = batches_.search().best_us();
    const double measuring = too_slow_for_contest(best_us).empty() ? kLastStageRuns * best_us * 1e-6 : 0;
    const double batches = std::max(1.0, kNeighbours / static_cast<double>(batches_.size()));
    budget_.expect_last_stage(batch_seconds_ * batches + measuring);
  }

  // Returns the config's screening time; nothing when it was pruned or is quarantined.
  std::optional<double> try_candidate(const Algorithm& algorithm, const Config& config, double best_us) {
    if (hopeless(algorithm, config, problem_, device_, ceilings_, best_us)) {
      ++report_.pruned;
      return std::nullopt;
    }
    if (const Trial* known = trials_.find(std::string(algorithm.name()), config, algorithm.source_hash())) {
      ++report_.resumed;
      if (!known->failure.empty()) return std::nullopt;
      screened_.push_back({&algorithm, config, nullptr, known->max_error, {}, known->time_us});
      tell_step(screened_.back(), true);
      return known->time_us;
    }
    ++report_.trials;
    Contender one = screening_.attempt(algorithm, config, best_us);
    screening_.write_down(one, one.failure);
    tell_step(one, false);
    if (!one.failure.empty()) {
      quarantined(one.text(), one.failure);
      return std::nullopt;
    }
    screened_.push_back(std::move(one));
    return screened_.back().screen_us;
  }

  void tell_step(const Contender& one, bool resumed) {
    report_.steps.push_back({std::string(one.algorithm->name()), one.config, one.algorithm->vendor(), resumed,
                             one.screen_us, one.failure});
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

  // The finalist, or one of its neighbours that is proven better.
  void tune_finely() {
    LastStage stage = last_stage(elected_.finalist, with_);
    for (const MicroTuning::Tried& one : stage.report.tried)
      if (!one.failure.empty())
        quarantined(fmt::format("{} {}", elected_.finalist.algorithm->name(), to_string(one.config)),
                    one.failure);
    if (stage.accepted) {
      elected_.runner_up = elected_.finalist;
      elected_.finalist = *stage.accepted;
    }
    report_.last_stage = std::move(stage.report);
  }

  void record(const Decision& decision) {
    Record record = record_of(report_.comparison, decision.chosen.algorithm->source_hash());
    if (decision.chosen.algorithm->vendor()) elected_.runner_up = elected_.finalist;
    if (elected_.runner_up.algorithm) {
      record.runner_up = elected_.runner_up.text();
      record.runner_up_us = elected_.runner_up.screen_us;
      record.runner_up_hash = elected_.runner_up.algorithm->source_hash();
    }
    record.undecided = decision.undecided;
    record.left_out = listed(screening_.left_out);
    if (decision.chosen.algorithm->compiles(decision.chosen.config)) record.compiler = kernel_compiler();
    if (!record.proven()) record.searched = kernels();
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
  const ConvProblem problem_;
  Backend& backend_;
  const DeviceInfo device_;
  const std::vector<const Algorithm*>& algorithms_;
  const TuneOptions& options_;
  Budget budget_;
  TrialLog trials_;
  const std::int64_t undecided_;  // contests in a row, before this one
  const std::vector<Contender> known_;
  TuningReport report_;
  Batches batches_;
  double batch_seconds_ = 0;  // the time that the last one took, compiled and tried
  const Ceilings ceilings_;
  Testbed bed_;
  Screening screening_;
  std::vector<Way> vendor_ways_;
  std::vector<Contender> vendors_, screened_;  // the first of vendor_ways_; and ours
  Election elected_;
  const SearchContext with_{
      problem_,
      device_,
      options_.min_gain,
      budget_,
      bed_,
      screening_,
      [this] { return cancelled(); },
      [this](const char* stage, std::int64_t steps) { tell(stage, 0, steps, budget_.left()); }};
};

}  // namespace

TuningReport tune_on(Backend& backend, const std::vector<const Algorithm*>& algorithms,
                     const ConvProblem& resolved, const TuneOptions& options,
                     const std::function<double()>& now_seconds, const std::optional<Record>& unproven) {
  return Tuning(resolved, backend, algorithms, options, now_seconds, unproven).run();
}

}  // namespace convtune
