// A search: each try's time in the order of the tries, and the best so far.
#include <algorithm>
#include <cmath>

#include "page/charts.h"
#include "page/html_table.h"
#include "page/numbers.h"
#include "page/svg.h"

namespace convtune::page {
namespace {

constexpr double kTop = 32, kBottom = 252, kHeight = 296;
// A few tries that took many times as long as nearly all others would press those into a line.
constexpr double kNearlyAll = 0.95, kMostTimesThose = 3;

std::string name_of(const SearchStep& step) {
  const std::string config = to_string(step.config);
  return config.empty() ? step.algorithm : step.algorithm + ' ' + config;
}

bool has_time(const SearchStep& step) {
  return step.failure.empty() && std::isfinite(step.time_us) && step.time_us > 0;
}

// The longest time that is drawn at its place.
double longest_drawn(const std::vector<SearchStep>& steps) {
  std::vector<double> times;
  for (const SearchStep& step : steps)
    if (has_time(step)) times.push_back(step.time_us);
  std::sort(times.begin(), times.end());
  const auto rank = static_cast<std::size_t>(kNearlyAll * static_cast<double>(times.size() - 1));
  return std::min(times.back(), kMostTimesThose * times[rank]);
}

struct Drawn {
  double least, longest;
  std::size_t each;  // every `each`-th is drawn, and all that became the best
  bool failed;
};

Drawing draw(const std::vector<SearchStep>& steps, const Drawn& drawn, const Room& room) {
  const double left = room.narrow ? 52 : 72, right = room.width - (room.narrow ? 4 : 120);
  const double count = static_cast<double>(steps.size());
  const Axis x(0, count + 1, left, right), y(drawn.least / 1.25, drawn.longest * 1.25, kBottom, kTop, true);
  Markup shapes = vertical_axis(y, left, right, "time", [](double us) {
    return us < 1e3   ? fmt::format("{:g} µs", us)
           : us < 1e6 ? fmt::format("{:g} ms", us / 1e3)
                      : fmt::format("{:g} s", us / 1e6);
  });
  shapes +=
      horizontal_axis(x, kBottom, kBottom, "try", [](double value) { return fmt::format("{:g}", value); });
  std::vector<Point> best_line, tried, vendors;
  const SearchStep* best = nullptr;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SearchStep& step = steps[i];
    const double at = x.at(static_cast<double>(i) + 1);
    if (!has_time(step)) {
      if (i % drawn.each == 0) shapes += mark({at, kTop + 4}, Mark::cross, "failed");
      continue;
    }
    const bool better = !best || step.time_us < best->time_us;
    if (better) {
      if (best) best_line.push_back({at, y.at(best->time_us)});
      best = &step;
      best_line.push_back({at, y.at(step.time_us)});
    }
    if (better || i % drawn.each == 0) (step.vendor ? vendors : tried).push_back({at, y.at(step.time_us)});
  }
  best_line.push_back({x.at(count), y.at(best->time_us)});
  shapes += dots(tried, "tried");
  for (const Point& point : vendors) shapes += mark(point, Mark::diamond, "best");
  shapes += path(best_line, "best-so-far");
  const std::string least = "best " + time_text(best->time_us);
  shapes += room.narrow ? label({right, y.at(best->time_us) + 16}, least, Anchor::end, "strong")
                        : label({right + 8, y.at(best->time_us) + 4}, least, Anchor::start, "strong");
  const auto legend = [&](double from, Mark kind, const char* look, const char* text) {
    shapes += mark({left + from, 14}, kind, look);
    shapes += label({left + from + 9, 18}, text);
  };
  legend(42, Mark::dot, "own", "convtune");
  legend(122, Mark::diamond, "best", "the vendor's ways");
  if (drawn.failed) legend(250, Mark::cross, "failed", "failed");
  return {kHeight, shapes};
}

}  // namespace

Markup search_chart(const std::string& id, const std::vector<SearchStep>& steps, std::size_t most) {
  Table table("the search, each try that was the best by then", {{"try", true}, {"time", true}, {"what"}});
  const SearchStep* best = nullptr;
  double greatest = 0;
  std::size_t failed = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SearchStep& step = steps[i];
    if (!has_time(step)) {
      ++failed;
      continue;
    }
    greatest = std::max(greatest, step.time_us);
    if (best && step.time_us >= best->time_us) continue;
    best = &step;
    table.add_row(std::vector<std::string>{fmt::format("{}", i + 1), time_text(step.time_us), name_of(step)});
  }
  if (!best) return {};
  const Drawn drawn{best->time_us, longest_drawn(steps),
                    std::max<std::size_t>(1, (steps.size() + most - 1) / std::max<std::size_t>(1, most)),
                    failed > 0};
  const auto longer = std::count_if(steps.begin(), steps.end(), [&](const SearchStep& step) {
    return has_time(step) && step.time_us > drawn.longest;
  });
  std::string words =
      fmt::format("{} tries by few samples each, {} failed; from {} down to {}, by {}.", steps.size(), failed,
                  time_text(greatest), time_text(best->time_us), name_of(*best));
  if (drawn.each > 1) words += fmt::format(" One of {} is drawn.", drawn.each);
  if (longer > 0)
    words += fmt::format(" {} took longer than {} and {} at the upper edge.",
                         longer == 1 ? std::string("One") : fmt::format("{}", longer),
                         time_text(drawn.longest), longer == 1 ? "stands" : "stand");
  words += " The fastest tries are then timed again in turns, at length, so that another may be chosen.";
  Markup html = figure(id, "Search", words, [&](const Room& room) { return draw(steps, drawn, room); });
  html += table.folded();
  return html;
}

}  // namespace convtune::page
