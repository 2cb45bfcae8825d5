// See refine_contest.h. A process has places in memory, clocks and caches of its own, and may be lucky: so
// what picked the best neighbour, its first contest and its second are three generations of processes.
// Between two samples every process but one waits for a line and leaves the GPU alone.
#include "refine_contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "convtune/error.h"
#include "stage_contest.h"

namespace convtune {
namespace {

constexpr std::size_t kFewestConfigs = 3;  // R4

// A config whose run failed, found out while it was timed.
struct Failed {
  std::size_t index;
};

class Contest {
 public:
  Contest(const TritonRunSpec& spec, const std::vector<StageList::Entry>& list,
          const RefineMeasureOptions& options)
      : spec_(spec), list_(list), options_(options), runs_(list.size()) {
    result_.measured.resize(list.size());
    spec_.python = options.python, spec_.seconds = options.seconds;
    spec_.cancelled = [this] { return cancelled(); };
  }

  RefineContest run() {
    try {
      std::vector<std::size_t> all;
      for (std::size_t i = 0; i < list_.size(); ++i) all.push_back(i);
      start(all);
      // One that fails while it is timed leaves, and the others begin again.
      while (enough() && !measure()) start(alive());
    } catch (const RunCancelled&) {
      result_.interrupted = true;
    }
    return std::move(result_);
  }

 private:
  bool cancelled() const { return options_.cancel && options_.cancel->load(); }
  void say(const std::string& text) const {
    if (options_.progress) options_.progress(text);
  }
  std::vector<std::size_t> alive() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (result_.measured[i].failure.empty()) all.push_back(i);
    return all;
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
      spec.stage = list_[i].config;
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
    const TritonOutput& original = runs_[0]->output();
    if (index == 0) {
      result_.place = runs_[0]->place(), result_.capability = runs_[0]->capability();
      if (!original.finite) fail(0, "its output holds what is no finite number");
      result_.measured[0].output = "the original's";
      return;
    }
    const TritonOutput& output = runs_[index]->output();
    if (const std::string why = difference(original, output); !why.empty()) return fail(index, why);
    result_.measured[index].output =
        output.bits == original.bits ? "the same bit for bit" : "the same but for rounding";
  }

  // R4 holds for what ran.
  bool enough() {
    const std::size_t left = alive().size();
    if (left >= kFewestConfigs) return true;
    result_.verdict =
        fmt::format("{} of {} configs ran and were right, fewer than {}: the list stays as it was", left,
                    list_.size(), kFewestConfigs);
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
    for (const std::size_t i : places)
      samplers.emplace_back([this, i] {
        try {
          return runs_[i]->sample_us();
        } catch (const RunFailure& failure) {
          fail(i, failure.what());
          throw Failed{i};
        }
      });
    try {
      say(fmt::format("measuring {} configs", places.size()));
      const StageContest contest = stage_contest(
          samplers, std::max(options_.min_gain, 0.01), [this] { return cancelled(); },
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
      result_.accepted = contest.accepted;
      result_.verdict = contest.reason;
    } catch (const Failed&) {
      return false;
    }
    return true;
  }

  void renew(std::size_t best) {
    start({0, best});
    if (!result_.measured[best].failure.empty()) throw Failed{best};
    say("original against " + list_[best].reason);
  }

  TritonRunSpec spec_;
  const std::vector<StageList::Entry>& list_;
  const RefineMeasureOptions& options_;
  std::vector<std::unique_ptr<TritonRun>> runs_;  // as the list; null: none
  RefineContest result_;
};

}  // namespace

RefineContest refine_contest(const TritonRunSpec& spec, const std::vector<StageList::Entry>& list,
                             const RefineMeasureOptions& options) {
  return Contest(spec, list, options).run();
}

}  // namespace convtune
