// See refine_contest.h. A process has places in memory, clocks and caches of its own, and may be lucky: so
// what picked the best neighbour, its first contest and its second are three generations of processes.
// Between two samples every process but one waits for a line and leaves the GPU alone.
//
// The metrics may be another GPU's, whose winner is not the old list's winner here: then a neighbour that
// beats the original is slower than the file as it was (20 % on an H100, for the profile of an RTX 4090). So
// Triton's autotuner is asked first what it picks of the old list, and a neighbour has to beat that too.
#include "triton/refine_contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/statistics.h"
#include "convtune/contest.h"
#include "convtune/error.h"
#include "triton/refine_original.h"
#include "tune/stage_contest.h"

namespace convtune {
namespace {

constexpr double kContestSeconds = 5;

// A config whose run failed, found out while it was timed.
struct Failed {
  std::size_t index;
};

class Contest {
 public:
  explicit Contest(const RefineContestQuestion& question)
      : q_(question), spec_(question.spec), list_(question.list), runs_(list_.size() + 1) {
    for (const StageList::Entry& entry : list_)
      result_.measured.push_back({to_string(entry.config), entry.reason, 0, 0, 0, {}, {}});
    spec_.cancelled = [this] { return cancelled(); };
  }

  RefineContest run() {
    try {
      find_old_winner();
      std::vector<std::size_t> all;
      for (std::size_t i = 0; i < list_.size(); ++i) all.push_back(i);
      start(all);
      // One that fails while it is timed leaves, and the others begin again.
      while (enough() && !measure())
        if (enough()) start(alive());
    } catch (const RunCancelled&) {
      result_.interrupted = true;
    }
    return std::move(result_);
  }

 private:
  bool cancelled() const { return q_.cancel && q_.cancel->load(); }
  void say(const std::string& text) const {
    if (q_.progress) q_.progress(text);
  }
  std::vector<std::size_t> alive() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (result_.measured[i].failure.empty()) all.push_back(i);
    return all;
  }

  // The old list's winner, where it is none of the new list.
  void find_old_winner() {
    if (!q_.has_list || q_.listed.size() == 1) return;
    say("asking Triton's autotuner for the old list's winner");
    try {
      TritonRunSpec spec = spec_;
      spec.source = q_.source;
      const PickedConfig picked = picked_config(spec);
      const TritonConfig* const known =
          picked.of == q_.listed.size() && q_.listed[picked.index].hidden.empty() ? &q_.listed[picked.index]
                                                                                  : nullptr;
      if (std::any_of(list_.begin(), list_.end(), [&](const StageList::Entry& entry) {
            return known ? known->same_blocks(q_.original) && known->stage == entry.config
                         : is_picked(entry.config, picked.words);
          }))
        return;
      // One whose list is not known is the file as it was, and finds its winner again.
      old_winner_ = picked.words, old_source_ = q_.source;
      std::string line;
      if (known) {
        old_winner_ = to_string(*known), old_source_ = q_.source_of(*known);
        line = fmt::format("line {}, ", known->line);
      }
      result_.measured.push_back({old_winner_, "the old list's winner here", 0, 0, 0, {}, {}});
      result_.note = fmt::format(
          "on this GPU the old list's winner is {}{}, and not what was profiled: metrics of this "
          "GPU would begin there",
          line, old_winner_);
    } catch (const RunFailure& failure) {
      result_.note = fmt::format("the old list's winner on this GPU is not known: {}", failure.what());
    }
  }

  // Tells whether this stage of the original is what Triton's words say.
  bool is_picked(const StageConfig& stage, const std::string& words) const {
    TritonConfig config = q_.original;
    config.stage = stage;
    try {
      return is_config(config, parse_config_words(words));
    } catch (const Error&) {
      return false;
    }
  }

  void fail(std::size_t index, const std::string& why) {
    if (index == 0)
      throw Error(ErrorKind::invalid_argument, "nothing was measured: the original config fails: " + why);
    result_.measured[index].failure = why;
    runs_[index].reset();
  }

  // New processes for these and none for the others; those that run and are right stay.
  void start(const std::vector<std::size_t>& wanted) {
    say(fmt::format("starting {} processes", wanted.size()));
    for (auto& run : runs_) run.reset();
    for (const std::size_t i : wanted) {
      TritonRunSpec spec = spec_;
      TritonConfig config = q_.original;
      if (i < list_.size()) config.stage = list_[i].config;
      spec.source = i == list_.size() ? old_source_ : q_.source_of(config);
      runs_[i] = std::make_unique<TritonRun>(spec);
    }
    for (const std::size_t i : wanted) try {
        runs_[i]->wait();
        judge(i);
      } catch (const RunFailure& failure) {
        fail(i, failure.what());
      }
  }

  void judge(std::size_t index) {
    const std::vector<TritonOutput>& original = runs_[0]->outputs();
    if (index == 0) {
      result_.place = runs_[0]->place(), result_.capability = runs_[0]->capability();
      for (const TritonOutput& output : original)
        if (!output.finite) fail(0, "its output holds what is no finite number");
      result_.measured[0].output = "the original's";
      return;
    }
    const std::vector<TritonOutput>& outputs = runs_[index]->outputs();
    if (const std::string why = difference(original, outputs); !why.empty()) return fail(index, why);
    bool same = true;
    for (std::size_t i = 0; i < outputs.size(); ++i) same &= outputs[i].bits == original[i].bits;
    result_.measured[index].output = same ? "the same bit for bit" : "the same but for rounding";
  }

  // R4 holds for what ran.
  bool enough() {
    const std::size_t left = alive().size();
    if (left >= q_.fewest) return true;
    result_.verdict =
        fmt::format("{} of {} configs ran and were right, fewer than {}: the list stays as it was", left,
                    list_.size(), q_.fewest);
    return false;
  }

  // False where one failed.
  bool measure() {
    if (const std::string slow = too_slow_for_contest(runs_[0]->first_us()); !slow.empty()) {
      result_.verdict = fmt::format("not measured: {}: the list stays as it was", slow);
      return true;
    }
    const std::vector<std::size_t> places = alive();
    std::vector<std::function<double()>> samplers;
    for (const std::size_t i : places) samplers.push_back(sampler(i));
    try {
      say(fmt::format("measuring {} configs", places.size()));
      const StageContest contest = stage_contest(
          samplers, std::max(q_.min_gain, 0.01), [this] { return cancelled(); },
          [&](std::size_t best) {
            if (cancelled()) throw RunCancelled();
            renew(places[best]);
          });
      if (contest.cancelled || cancelled()) throw RunCancelled();
      for (std::size_t i = 0; i < places.size(); ++i) {
        MeasuredConfig& one = result_.measured[places[i]];
        one.time_us = contest.in_turns[i].median_us, one.mad_us = contest.in_turns[i].mad_us;
        one.n = contest.in_turns[i].n;
      }
      result_.best = places[contest.best];
      result_.contests.clear();  // per measurement before, in which a config failed
      for (const ContestResult& held : contest.contests)
        result_.contests.push_back({"original", list_[result_.best].reason, held});
      result_.accepted = contest.accepted;
      result_.verdict = contest.reason;
      if (contest.accepted && !old_winner_.empty() && result_.measured.back().failure.empty())
        beat_old_winner();
    } catch (const Failed&) {
      result_.accepted = false, result_.best = 0;
      return false;
    }
    return true;
  }

  std::function<double()> sampler(std::size_t index) {
    return [this, index] {
      try {
        return runs_[index]->sample_us();
      } catch (const RunFailure& failure) {
        fail(index, failure.what());
        throw Failed{index};
      }
    };
  }

  void beat_old_winner() {
    const std::size_t old = list_.size();
    MeasuredConfig& one = result_.measured[old];
    start({0, result_.best, old});
    if (!result_.measured[result_.best].failure.empty()) throw Failed{result_.best};
    if (!one.failure.empty()) return;  // it is in the table
    ContestOptions rules;
    rules.min_gain = std::max(q_.min_gain, 0.01), rules.max_seconds = kContestSeconds;
    rules.cancelled = [this] { return cancelled(); };
    const ContestResult last = contest(sampler(old), sampler(result_.best), rules);
    if (last.cancelled) throw RunCancelled();
    one.time_us = median(last.incumbent_us), one.mad_us = median_absolute_deviation(last.incumbent_us);
    one.n = static_cast<std::int64_t>(last.incumbent_us.size());
    result_.accepted = last.accepted;
    result_.contests.push_back({old_winner_, list_[result_.best].reason, last});
    result_.verdict += fmt::format("{} against the old list's winner here, {}: {}",
                                   last.accepted ? ";" : ", but", old_winner_, last.reason);
  }

  void renew(std::size_t best) {
    start({0, best});
    if (!result_.measured[best].failure.empty()) throw Failed{best};
    say("original against " + list_[best].reason);
  }

  const RefineContestQuestion& q_;
  TritonRunSpec spec_;
  const std::vector<StageList::Entry>& list_;
  std::string old_winner_, old_source_;           // if the old list's winner is none of list_
  std::vector<std::unique_ptr<TritonRun>> runs_;  // as the list, then the old winner's; null: none
  RefineContest result_;
};

}  // namespace

RefineContest refine_contest(const RefineContestQuestion& question) {
  return Contest(question).run();
}

}  // namespace convtune
