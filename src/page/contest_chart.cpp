// A contest's rounds: of each the gain of the challenger, from its two times and the incumbent's two.
#include <algorithm>
#include <cmath>

#include "page/charts.h"
#include "page/html_table.h"
#include "page/numbers.h"
#include "page/svg.h"

namespace convtune::page {
namespace {

constexpr double kTop = 32, kBottom = 232, kHeight = 276;

struct Round {
  double incumbent_us, challenger_us;  // means of two
  double gain() const { return 1 - challenger_us / incumbent_us; }
};

std::vector<Round> rounds_of(const ContestResult& result) {
  std::vector<Round> rounds;
  for (std::size_t i = 0; i + 1 < std::min(result.incumbent_us.size(), result.challenger_us.size()); i += 2)
    rounds.push_back({(result.incumbent_us[i] + result.incumbent_us[i + 1]) / 2,
                      (result.challenger_us[i] + result.challenger_us[i + 1]) / 2});
  std::erase_if(rounds, [](const Round& one) { return !std::isfinite(one.gain()); });
  return rounds;
}

std::string verdict(const ContestResult& result) {
  if (result.accepted) return "The gain is proven: the whole interval is above what was asked.";
  if (result.undecided && result.busy)
    return fmt::format(
        "Not decided, since the machine is busy: {} of {} samples of the incumbent were "
        "interrupted and {} of the challenger's.",
        result.incumbent_interrupted, result.incumbent_us.size(), result.challenger_interrupted);
  if (result.undecided) return "Not decided: the interval holds gains above and below what was asked.";
  return "The gain that was asked is not proven: the incumbent stays.";
}

Drawing draw(const ContestResult& result, const std::vector<Round>& rounds, bool interval, const Room& room) {
  const double left = room.narrow ? 48 : 72, right = room.width - (room.narrow ? 104 : 160);
  double low = std::min(0.0, result.min_gain), high = std::max(0.0, result.min_gain);
  for (const Round& one : rounds) low = std::min(low, one.gain()), high = std::max(high, one.gain());
  const double margin = 0.08 * std::max(high - low, 1e-3);
  const Axis x(0, static_cast<double>(rounds.size()) + 1, left, right);
  const Axis y(100 * (low - margin), 100 * (high + margin), kBottom, kTop);
  Markup shapes =
      vertical_axis(y, left, right, "less time, %", [](double value) { return fmt::format("{:g}", value); });
  shapes +=
      horizontal_axis(Axis(1, std::max<double>(2, static_cast<double>(rounds.size())), x.at(1),
                           x.at(std::max<double>(2, static_cast<double>(rounds.size())))),
                      kBottom, kBottom, "round", [](double value) { return fmt::format("{:g}", value); });
  if (interval) {
    const double from = y.at(100 * result.interval.high), to = y.at(100 * result.interval.low);
    shapes += rectangle({left, from}, right - left, std::max(1.0, to - from), "interval");
  }
  shapes += line({left, y.at(0)}, {right, y.at(0)}, "zero");
  std::vector<Point> points;
  for (std::size_t i = 0; i < rounds.size(); ++i)
    points.push_back({x.at(static_cast<double>(i) + 1), y.at(100 * rounds[i].gain())});
  shapes += dots(points, "round");
  const double median = y.at(100 * result.gain);
  double asked = y.at(100 * result.min_gain);
  shapes += line({left, median}, {right, median}, "median");
  shapes += line({left, asked}, {right, asked}, "asked");
  if (std::abs(asked - median) < 15) asked = median + (asked < median ? -15 : 15);
  shapes += label({right + 8, median + 4}, "median " + percent(result.gain), Anchor::start, "strong");
  shapes += label({right + 8, asked + 4}, "asked " + percent(result.min_gain));
  return {kHeight, shapes};
}

}  // namespace

Markup contest_chart(const std::string& id, const HeldContest& contest, bool with_rounds) {
  const ContestResult& result = contest.result;
  const std::vector<Round> rounds = rounds_of(result);
  if (rounds.empty()) return {};
  const bool interval = std::isfinite(result.interval.low) && std::isfinite(result.interval.high);
  const std::string range = interval
                                ? fmt::format("{:g} % interval {:.1f} to {:.1f} %", 100 * result.confidence,
                                              100 * result.interval.low, 100 * result.interval.high)
                                : std::string("too few rounds for an interval");
  const std::string words = fmt::format("{} against {}: median {} less time over {} rounds, {}, asked {}. {}",
                                        contest.challenger, contest.incumbent, percent(result.gain),
                                        rounds.size(), range, percent(result.min_gain), verdict(result));
  Table table("rounds of the contest",
              {{"round", true}, {"incumbent µs", true}, {"challenger µs", true}, {"less time %", true}});
  for (std::size_t i = 0; i < rounds.size(); ++i)
    table.add_row(std::vector<std::string>{
        fmt::format("{}", i + 1), fmt::format("{:.4g}", rounds[i].incumbent_us),
        fmt::format("{:.4g}", rounds[i].challenger_us), fmt::format("{:.2f}", 100 * rounds[i].gain())});
  Markup html = figure(
      id, "Contest", words, [&](const Room& room) { return draw(result, rounds, interval, room); }, {},
      with_rounds ? Rooms::both : Rooms::small);
  if (with_rounds) html += table.folded();
  return html;
}

}  // namespace convtune::page
