// The stopping rule of the contest, and the sentence that says what came of it.
//
// The interval is looked at after min_rounds, twice that, four times that, ... and at the end: few
// looks, because each one is a chance for noise to win. The doubt that `confidence` allows is split
// between the looks that the options make possible (Bonferroni): a fifth for the first, which is what ten
// rounds that agree need, and equal parts of the rest for the others. So all of them together hold with
// `confidence`. With the defaults: after 10 rounds at 99.8 %, after 20, 40, 80, 160, 320 and 640 at 99.87 %.
// Running out of time replaces the next look by the last one, so it never adds a look.
//
// Where a third of the samples are disturbed by half their time and more, every third round of a gain of 30 %
// shows a loss: ten rounds prove nothing then, nor do forty, and a hundred do.
//
// The interval is the exact one of order statistics, so a challenger whose true gain is min_gain or
// less wins at most (1 - confidence) / 2 of its contests: 0.5 %, by arithmetic. The bootstrap was
// tried: at 10 rounds its tails are twice too thin, and an A/A contest was accepted 1.3 % of the time.
//
// A contest that is held again, as often as it takes, would be won by noise at last. So the first one again
// has half the doubt, the next one a quarter, and so on: 0.5 % + 0.25 % + 0.125 % + ... is 1 % for all of
// them. The shortest that can prove anything with half the doubt is one round longer.
#include "convtune/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/statistics.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr double kLeaning = 0.75;  // of the interval that an undecided contest leans by

double checked_time(const std::function<double()>& side, const char* name) {
  const double time_us = side();
  if (!std::isfinite(time_us) || time_us <= 0)
    throw Error(
        ErrorKind::internal,
        fmt::format("contest: the {} was timed at {} us; a time is finite and above 0", name, time_us));
  return time_us;
}

int count_looks(int min_rounds, int max_rounds) {
  int looks = 1;
  for (std::int64_t rounds = min_rounds; rounds < max_rounds; rounds *= 2) ++looks;
  return looks;
}

// The share of the doubt that a look may have; `index` counts from 0.
double share_of_look(int index, int looks) {
  constexpr double kFirst = 0.2;
  return looks == 1 ? 1 : index == 0 ? kFirst : (1 - kFirst) / (looks - 1);
}

// Without "-0.0".
std::string percent(double fraction) {
  return fmt::format("{:.1f}", std::round(fraction * 1000) / 10 + 0.0);
}

std::string describe(const ContestResult& result, const ContestOptions& options) {
  const std::string asked = fmt::format("{:.4g} %", options.min_gain * 100);
  if (result.cancelled) return fmt::format("cancelled after {} rounds", result.rounds);
  if (!std::isfinite(result.interval.low))
    return fmt::format("{} rounds are too few to prove a gain", result.rounds);
  const std::string interval =
      fmt::format("({:.4g} % interval {}..{} %) over {} rounds", options.confidence * 100,
                  percent(result.interval.low), percent(result.interval.high), result.rounds);
  if (result.accepted)
    return fmt::format("takes {} % less time {}, more than the {} asked", percent(result.gain), interval,
                       asked);
  if (result.interval.high < options.min_gain)
    return fmt::format("gain {} % {} is below {}", percent(result.gain), interval, asked);
  return fmt::format("gain {} % {} is not proven to {} {}", percent(result.gain), interval,
                     options.min_gain > 0 ? "reach" : "be above", asked);
}

}  // namespace

double ContestResult::incumbent_median_us() const {
  return median(incumbent_us);
}
double ContestResult::challenger_median_us() const {
  return median(challenger_us);
}

ContestOptions once_more(ContestOptions options, std::int64_t undecided) {
  const int halvings = static_cast<int>(std::clamp<std::int64_t>(undecided, 0, 20));
  options.confidence = 1 - std::ldexp(1 - options.confidence, -halvings);
  options.min_rounds += halvings;
  options.max_rounds = std::max(options.max_rounds, options.min_rounds);
  return options;
}

ContestResult contest(const std::function<double()>& incumbent, const std::function<double()>& challenger,
                      const ContestOptions& options) {
  const int min_rounds = std::max(1, options.min_rounds);
  const int max_rounds = std::max(min_rounds, options.max_rounds);
  const int looks = count_looks(min_rounds, max_rounds);

  ContestResult result;
  result.min_gain = options.min_gain, result.confidence = options.confidence;
  std::vector<double> gains;
  double seconds = 0;
  int looked = 0;
  const auto run = [&](const std::function<double()>& side, const char* name, std::vector<double>& samples) {
    samples.push_back(checked_time(side, name));
    seconds += samples.back() * 1e-6;
    return samples.back();
  };
  const auto look = [&] {
    result.gain = median(gains);
    const double doubt = (1 - options.confidence) * share_of_look(looked++, looks);
    result.interval = exact_median_interval(gains, 1 - doubt);
  };

  std::int64_t next_look = min_rounds;
  while (true) {
    if (options.cancelled && options.cancelled()) {
      result.cancelled = true;
      look();
      break;
    }
    const double a1 = run(incumbent, "incumbent", result.incumbent_us);
    const double b1 = run(challenger, "challenger", result.challenger_us);
    const double b2 = run(challenger, "challenger", result.challenger_us);
    const double a2 = run(incumbent, "incumbent", result.incumbent_us);
    gains.push_back(1 - (b1 + b2) / (a1 + a2));
    ++result.rounds;

    const bool last =
        result.rounds >= max_rounds ||
        (result.rounds >= min_rounds && (seconds >= options.max_seconds || (options.late && options.late())));
    if (!last && result.rounds < next_look) continue;
    next_look *= 2;
    look();
    // A tie is no gain, whatever was asked: the challenger must be proven faster.
    result.accepted = result.interval.low >= options.min_gain && result.interval.low > 0;
    if (last || result.accepted || result.interval.high < options.min_gain) break;
  }
  result.undecided = !result.accepted && !result.cancelled && result.interval.high >= options.min_gain &&
                     result.interval.high > 0;
  result.leans_to_challenger = result.undecided && exact_median_interval(gains, kLeaning).low > 0;
  result.finding = describe(result, options);
  result.reason = result.finding + (result.accepted ? "" : ": the incumbent stays");
  return result;
}

}  // namespace convtune
