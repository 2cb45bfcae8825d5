// See stage_contest.h. Stable is what three things say at once: the interval of the paired gain lies above
// what is asked, a second contest finds the same, and the deviation of the times is small.
#include "tune/stage_contest.h"

#include <fmt/format.h>

#include "base/statistics.h"
#include "convtune/contest.h"

namespace convtune {
namespace {

constexpr double kPickSeconds = 1;
constexpr int kFewestPicks = 5, kMostPicks = 40;  // rounds of picking
// A contest takes 10 rounds where the answer is plain, and up to 640 in the time there is: at least 25. A
// gain of 5 % in a noise of 2 % was found by 10 rounds in 30 of 100 cases, by 20 in 94, by 25 in 99.
constexpr int kFewestSamples = 40;
constexpr double kFewestSamplesSeconds = 2, kStageContestSeconds = 5;
constexpr double kMostDeviation = 0.02;  // median absolute deviation over median

double deviation(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> all = first;
  all.insert(all.end(), second.begin(), second.end());
  return median_absolute_deviation(all) / median(all);
}

}  // namespace

std::string too_slow_for_contest(double time_us) {
  const double seconds = kFewestSamples * time_us * 1e-6;
  if (seconds <= kFewestSamplesSeconds) return {};
  return fmt::format("{} runs of {:.0f} ms would take {:.1f} s, and {:g} s is the most", kFewestSamples,
                     time_us * 1e-3, seconds, kFewestSamplesSeconds);
}

StageContest stage_contest(const std::vector<std::function<double()>>& samplers, double min_gain,
                           const std::function<bool()>& cancelled,
                           const std::function<void(std::size_t)>& before_contest,
                           const std::function<bool()>& late, const std::function<Witness()>& witness) {
  StageContest result;
  result.in_turns = measure_in_turns(samplers, kPickSeconds, cancelled, kFewestPicks, kMostPicks, late);
  result.best = 1;
  for (std::size_t i = 2; i < samplers.size(); ++i)
    if (result.in_turns[i].median_us < result.in_turns[result.best].median_us) result.best = i;

  ContestOptions rules;
  rules.min_gain = min_gain;
  rules.max_seconds = kStageContestSeconds;
  rules.cancelled = cancelled;
  rules.late = late;
  rules.witness = witness;
  if (before_contest) before_contest(result.best);
  const ContestResult first = contest(samplers[0], samplers[result.best], rules);
  result.contests.push_back(first);
  result.gain = first.gain, result.cancelled = first.cancelled, result.reason = first.reason;
  if (!first.accepted) return result;

  if (before_contest) before_contest(result.best);
  const ContestResult second = contest(samplers[0], samplers[result.best], rules);
  result.contests.push_back(second);
  result.gain = second.gain, result.cancelled = second.cancelled;
  if (!second.accepted) {
    result.reason += fmt::format(", but a second contest disagrees: {}", second.reason);
    return result;
  }
  const double of_original = deviation(first.incumbent_us, second.incumbent_us),
               of_best = deviation(first.challenger_us, second.challenger_us);
  if (of_original > kMostDeviation || of_best > kMostDeviation) {
    result.reason += fmt::format(
        ", but the times are not stable: they deviate by {:.1f} and {:.1f} %, and {:g} "
        "% is the most: the incumbent stays",
        100 * of_original, 100 * of_best, 100 * kMostDeviation);
    return result;
  }
  result.accepted = true;
  result.reason += fmt::format("; a second contest agrees with {:.1f} %", 100 * second.gain);
  return result;
}

}  // namespace convtune
