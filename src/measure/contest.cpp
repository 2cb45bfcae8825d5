// The stopping rule of the contest, and the sentence that says what came of it.
//
// The interval is looked at after min_rounds, twice that, four times that, ... and at the end: few
// looks, because each one is a chance for noise to win. The doubt that `confidence` allows is split
// between the looks that the options make possible (Bonferroni): a fifth for the first, which is what ten
// rounds that agree need, and equal parts of the rest for the others. So all of them together hold with
// `confidence`. With the defaults: after 10 rounds at 99.8 %, after 20, 40, 80, 160, 320 and 640 at 99.87 %.
// Running out of time replaces the next look by the last one, so it never adds a look.
//
// If a third of the samples are disturbed by half their time and more, every third round of a gain of 30 %
// shows a loss: ten rounds prove nothing then, nor do forty, and a hundred do.
//
// The interval is the exact one of order statistics, so a challenger whose true gain is min_gain or
// less wins at most (1 - confidence) / 2 of its contests: 0.5 %, by arithmetic. The bootstrap was
// tried: at 10 rounds its tails are twice too thin, and an A/A contest was accepted 1.3 % of the time.
//
// A busy machine does not only add noise. A sample that is shorter than the scheduler's slice can go without
// an interruption, a longer one never does, however often it is taken again: one side's times are the
// kernel's and the other's are the scheduler's, in every round alike. A kernel of 3.2 ms was "proven" 19
// times as fast as one of 21 ms so. Two things tell: how many samples of each side were interrupted, and the
// processor time, which goes on only while a thread runs. Where the shares differ nothing is decided. Where
// both sides are interrupted alike, a gain has to be proven twice, by either clock: threads that wait for a
// preempted one use processor time too, so that alone it would be no proof.
//
// A contest that is held again, as often as it takes, would be won by noise at last. So the first one again
// has half the doubt, the next one a quarter, and so on: 0.5 % + 0.25 % + 0.125 % + ... is 1 % for all of
// them. The shortest that can prove anything with half the doubt is one round longer.
#include "convtune/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/statistics.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr double kLeaning = 0.75;  // for the interval that an undecided contest leans by
constexpr double kBusy = 0.25;     // of a side's samples interrupted; fewer leave a median as it is

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

// One side: its samples as they come, by the clock and by processor time.
struct Side {
  const std::function<double()>& run;
  const char* name;
  std::vector<double>& us;
  int& interrupted;
  double cpu_us = 0;  // for the last sample; 0: nobody knows

  double sample(const std::function<Witness()>& witness) {
    us.push_back(checked_time(run, name));
    const Witness said = witness ? witness() : Witness{};
    interrupted += said.interrupted;
    cpu_us = us.back() * said.processors;
    return us.back();
  }
};

bool proven(const Interval& interval, double min_gain) {
  return interval.low >= min_gain && interval.low > 0;  // a tie is no gain, whatever was asked
}

std::string describe(const ContestResult& result, const ContestOptions& options, double cpu_gain) {
  const std::string asked = fmt::format("{:.4g} %", options.min_gain * 100);
  if (result.cancelled) return fmt::format("cancelled after {} rounds", result.rounds);
  if (!std::isfinite(result.interval.low))
    return fmt::format("{} rounds are too few to prove a gain", result.rounds);
  const std::string interval =
      fmt::format("({:.4g} % interval {}..{} %) over {} rounds", options.confidence * 100,
                  percent(result.interval.low), percent(result.interval.high), result.rounds);
  const std::string busy = fmt::format(
      "the machine is busy, {} of {} samples of the incumbent were interrupted and {} of the "
      "challenger's",
      result.incumbent_interrupted, result.incumbent_us.size(), result.challenger_interrupted);
  if (result.accepted)
    return fmt::format("takes {} % less time {}, more than the {} asked{}", percent(result.gain), interval,
                       asked, result.busy ? "; " + busy + ", and processor time proves a gain, too" : "");
  if (result.undecided && result.busy)
    return fmt::format("gain {} % {}, {} % by processor time, is not proven: {}", percent(result.gain),
                       interval, percent(cpu_gain), busy);
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
  Side a{incumbent, "incumbent", result.incumbent_us, result.incumbent_interrupted};
  Side b{challenger, "challenger", result.challenger_us, result.challenger_interrupted};
  std::vector<double> gains, cpu_gains;
  double seconds = 0;
  int looked = 0;
  bool uneven = false;  // one side was interrupted more often
  const auto look = [&] {
    result.gain = median(gains);
    const double sure = 1 - (1 - options.confidence) * share_of_look(looked++, looks);
    result.interval = exact_median_interval(gains, sure);
    const double busy = kBusy * static_cast<double>(result.incumbent_us.size());
    result.busy = std::max(a.interrupted, b.interrupted) >= std::max(busy, 1.0);
    uneven = result.busy && std::abs(a.interrupted - b.interrupted) >= busy;
    result.accepted = !uneven && proven(result.interval, options.min_gain) &&
                      (!result.busy || proven(exact_median_interval(cpu_gains, sure), options.min_gain));
  };

  std::int64_t next_look = min_rounds;
  while (true) {
    if (options.cancelled && options.cancelled()) {
      result.cancelled = true;
      look();
      result.accepted = false;
      break;
    }
    double a_us = 0, b_us = 0, a_cpu_us = 0, b_cpu_us = 0;
    for (Side* const side : {&a, &b, &b, &a}) {
      (side == &a ? a_us : b_us) += side->sample(options.witness);
      (side == &a ? a_cpu_us : b_cpu_us) += side->cpu_us;
    }
    gains.push_back(1 - b_us / a_us);
    cpu_gains.push_back(a_cpu_us > 0 && b_cpu_us > 0 ? 1 - b_cpu_us / a_cpu_us : 0);
    seconds += (a_us + b_us) * 1e-6;
    ++result.rounds;

    const bool last =
        result.rounds >= max_rounds ||
        (result.rounds >= min_rounds && (seconds >= options.max_seconds || (options.late && options.late())));
    if (!last && result.rounds < next_look) continue;
    next_look *= 2;
    look();
    if (last || result.accepted || (!uneven && result.interval.high < options.min_gain)) break;
  }
  const bool may_reach = result.interval.high >= options.min_gain && result.interval.high > 0;
  result.undecided = !result.accepted && !result.cancelled && (uneven || may_reach);
  const auto leans = [](const std::vector<double>& to) {
    return exact_median_interval(to, kLeaning).low > 0;
  };
  result.leans_to_challenger = result.undecided && leans(gains) && (!result.busy || leans(cpu_gains));
  result.finding = describe(result, options, median(cpu_gains));
  result.reason = result.finding + (result.accepted ? "" : ": the incumbent stays");
  return result;
}

}  // namespace convtune
