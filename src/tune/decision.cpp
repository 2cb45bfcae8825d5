// See decision.h.
#include "tune/decision.h"

#include <fmt/format.h>

#include <algorithm>

#include "convtune/contest.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "plan/resources.h"

namespace convtune {
namespace {

constexpr double kContestSeconds = 10, kComparisonSeconds = 3;
// Bounds from below the time of a contest and of a table, however late it is: a fast kernel has many rounds
// in it.
constexpr double kShortSeconds = 0.2;

// `chosen`: whichever of the two is used from now on.
std::string outcome(const ContestResult& result, const std::string& challenger, const std::string& incumbent,
                    const std::string& chosen, const Load& load) {
  if (!result.undecided) return fmt::format("{} against {}: {}", challenger, incumbent, result.reason);
  const std::string why = result.busy
                              ? fmt::format("load {:.1f} on {} processors", load.average, load.processors)
                              : "a busy machine, a gain near what is asked, or a small budget";
  return fmt::format(
      "{} against {}: {}: not decided ({}); {} is used meanwhile, without proof, and the next tune holds the "
      "contest again",
      challenger, incumbent, result.finding, why, chosen);
}

// The incumbent is the vendor's best by few samples. Where another of its ways is clearly faster in the
// rounds of the table, the contest was not held with the best: that way's name, else nothing.
std::string better_than_incumbent(const Comparison& table, const std::string& incumbent, double min_gain) {
  constexpr double kClearly = 0.02;
  double best_us = 0, incumbent_us = 0;
  for (std::size_t i = 1; i < table.providers.size(); ++i) {
    if (table.providers[i].name == table.best_peer) best_us = table.providers[i].time_us;
    if (table.providers[i].name == incumbent) incumbent_us = table.providers[i].time_us;
  }
  return best_us < (1 - std::max(min_gain, kClearly)) * incumbent_us ? table.best_peer : std::string();
}

// The table's many rounds decide among the vendor's ways: what lost to a slower one would have lost to it,
// too.
void keep_way(const std::string& name, const std::vector<Contender>& vendors, Decision& decision) {
  for (const Contender& vendor : vendors)
    if (vendor.text() == name) decision.chosen = vendor;
  std::vector<ProviderResult>& providers = decision.comparison.providers;
  const std::string ours = providers.front().name;
  for (const ProviderResult& provider : providers)
    if (provider.name == name) {
      providers.front() = provider;
      break;
    }
  providers.front().name = ours;
  decision.comparison.speedup = 1;
}

std::function<bool()> late_after(const Budget& budget, double seconds) {
  return [&budget, end = budget.spent() + seconds] { return budget.spent() >= end; };
}

Contender reference(const SearchContext& with) {
  const Plan plan = choose(with.problem, with.device);
  Contender one = contender(find_algorithm(with.device.device.kind, plan.algorithm), plan.config,
                            with.problem, with.device, with.bed);
  if (!one.failure.empty())
    throw Error(ErrorKind::unsupported,
                fmt::format("nothing here runs {} rightly: {}", to_string(with.problem), one.failure));
  return one;
}

// Estimates the least time of the table of times: its fewest rounds of both sides.
double table_seconds(const Contender& ours, const std::vector<Contender>& vendors) {
  constexpr double kRounds = 5;
  double round_us = ours.screen_us;
  for (const Contender& vendor : vendors) round_us += vendor.failure.empty() ? vendor.screen_us : 0;
  return kRounds * 1e-6 * round_us;
}

// `after`: seconds that what comes behind it takes.
ContestResult hold_contest(const Contender& incumbent, const Contender& challenger, std::int64_t undecided,
                           double after, const SearchContext& with) {
  with.tell("contest", 1);
  ContestOptions rules;
  rules.min_gain = with.min_gain;
  rules.max_seconds = kContestSeconds;
  rules.cancelled = with.cancelled;
  rules.witness = with.bed.witness();
  rules.late = late_after(with.budget, std::max(with.budget.left() - after, kShortSeconds));
  ContestResult held = contest(with.bed.sampler(*incumbent.executable),
                               with.bed.sampler(*challenger.executable), once_more(rules, undecided));
  with.screening.clock_drifts("both sides of the contest took turns, but the times are of a slower machine");
  return held;
}

}  // namespace

std::string listed(const std::vector<std::string>& ways) {
  constexpr std::size_t kNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, ways.size()); ++i) text += (i > 0 ? ", " : "") + ways[i];
  return ways.size() > kNamed ? fmt::format("{} and {} more", text, ways.size() - kNamed) : text;
}

Decision decide(const Election& elected, const std::vector<Contender>& vendors, std::size_t vendor_ways,
                std::int64_t undecided, const SearchContext& with) {
  const std::vector<std::string>& left_out = with.screening.left_out;
  const Contender& ours = elected.finalist;
  const Contender* const theirs = elected.incumbent;
  Decision result;
  std::string why;
  if (!ours.algorithm && !theirs) {
    result.chosen = reference(with);
    why = "no fast algorithm can run this problem here";
  } else if (!theirs) {
    result.chosen = ours;
    why = left_out.empty() ? "no vendor library can run this problem here: the fastest of our own is chosen"
                           : "no way of the vendor's was tried: the fastest of our own is chosen";
  } else if (!ours.algorithm) {
    result.chosen = *theirs;
    why = "no algorithm of our own was tried successfully: the vendor stays";
  } else {
    const ContestResult held = hold_contest(*theirs, ours, undecided, table_seconds(ours, vendors), with);
    result.chosen = held.accepted || held.leans_to_challenger ? ours : *theirs;
    why =
        outcome(held, ours.text(), theirs->text(), result.chosen.text(), backend(with.device.device).load());
    if (held.undecided) result.undecided = undecided + 1;
    result.contest = {theirs->text(), ours.text(), held};
  }
  if (!left_out.empty())
    why += fmt::format("; without proof, since {} had no part in it: a later tune tries {} again",
                       listed(left_out), left_out.size() == 1 ? "it" : "them");
  if (const std::size_t untried = vendor_ways - vendors.size(); untried > 0)
    why += fmt::format("; {} of the vendor's {} ways were not tried, budget", untried, vendor_ways);
  if (with.cancelled()) return result;
  with.tell("measure", 1);
  result.comparison = measure_comparison(
      with.problem, with.device, result.chosen, vendors, with.bed, kComparisonSeconds, with.cancelled,
      [short_of = late_after(with.budget, kShortSeconds), late = with.budget.late(Budget::Stage::verdict)] {
        return late() && short_of();
      });
  const std::string better =
      better_than_incumbent(result.comparison, theirs ? theirs->text() : std::string(), with.min_gain);
  if (!better.empty() && result.chosen.algorithm->vendor()) {
    keep_way(better, vendors, result);
    why += fmt::format("; of the vendor's ways {} was the fastest afterwards, and is kept", better);
  } else if (!better.empty()) {
    result.undecided = undecided + 1;
    why += fmt::format(
        "; without proof, since {} was faster afterwards: the next tune holds the contest again", better);
  }
  result.comparison.resources =
      resources_of(*result.chosen.algorithm, result.chosen.config, with.problem, with.device);
  result.proven = result.undecided == 0 && left_out.empty();
  result.comparison.plan = {std::string(result.chosen.algorithm->name()), result.chosen.config,
                            result.proven ? PlanSource::tuned : PlanSource::unproven, why};
  result.comparison.decision = why;
  return result;
}

}  // namespace convtune
