// A search: each try's time in the order of the tries, and the best so far.
#include <algorithm>
#include <cmath>

#include "page/charts.h"
#include "page/numbers.h"
#include "page/svg.h"
#include "page/table.h"

namespace convtune::page {
namespace {

constexpr double kLeft = 72, kRight = 600, kTop = 32, kBottom = 252, kHeight = 296;

std::string name_of(const SearchStep& step) {
  const std::string config = to_string(step.config);
  return config.empty() ? step.algorithm : step.algorithm + ' ' + config;
}

bool has_time(const SearchStep& step) {
  return step.failure.empty() && std::isfinite(step.time_us) && step.time_us > 0;
}

}  // namespace

Markup search_chart(const std::string& id, const std::vector<SearchStep>& steps, std::size_t most) {
  double least = 0, greatest = 0;
  for (const SearchStep& step : steps)
    if (has_time(step)) {
      least = least > 0 ? std::min(least, step.time_us) : step.time_us;
      greatest = std::max(greatest, step.time_us);
    }
  if (least == 0) return {};
  const double count = static_cast<double>(steps.size());
  const Axis x(0, count + 1, kLeft, kRight), y(least / 1.25, greatest * 1.25, kBottom, kTop, true);
  Markup shapes = vertical_axis(y, kLeft, kRight, "time", [](double us) {
    return us < 1e3   ? fmt::format("{:g} µs", us)
           : us < 1e6 ? fmt::format("{:g} ms", us / 1e3)
                      : fmt::format("{:g} s", us / 1e6);
  });
  shapes +=
      horizontal_axis(x, kBottom, kBottom, "try", [](double value) { return fmt::format("{:g}", value); });
  Table table("the search, each try that was the best by then", {{"try", true}, {"time", true}, {"what"}});
  // Where there are many tries, only one in `each` is drawn, and every one that became the best.
  const std::size_t each =
      std::max<std::size_t>(1, (steps.size() + most - 1) / std::max<std::size_t>(1, most));
  std::vector<Point> best_line, tried, vendors;
  const SearchStep* best = nullptr;
  std::size_t failed = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const SearchStep& step = steps[i];
    const double at = x.at(static_cast<double>(i) + 1);
    if (!has_time(step)) {
      ++failed;
      if (i % each == 0) shapes += mark({at, kTop + 4}, Mark::cross, "failed");
      continue;
    }
    const bool better = !best || step.time_us < best->time_us;
    if (better) {
      if (best) best_line.push_back({at, y.at(best->time_us)});
      best = &step;
      best_line.push_back({at, y.at(step.time_us)});
      table.add_row(
          std::vector<std::string>{fmt::format("{}", i + 1), time_text(step.time_us), name_of(step)});
    }
    if (better || i % each == 0) (step.vendor ? vendors : tried).push_back({at, y.at(step.time_us)});
  }
  best_line.push_back({x.at(count), y.at(best->time_us)});
  shapes += dots(tried, "tried");
  for (const Point& point : vendors) shapes += mark(point, Mark::diamond, "best");
  shapes += path(best_line, "best-so-far");
  shapes += label({kRight + 8, y.at(best->time_us) + 4}, "best " + time_text(best->time_us), Anchor::start,
                  "strong");
  const auto legend = [&](double from, Mark kind, const char* look, const char* text) {
    shapes += mark({from, 14}, kind, look);
    shapes += label({from + 9, 18}, text);
  };
  legend(kRight - 300, Mark::dot, "own", "convtune's configs");
  legend(kRight - 160, Mark::diamond, "best", "the vendor's ways");
  if (failed > 0) legend(kRight - 30, Mark::cross, "failed", "failed");
  const std::string words =
      fmt::format("{} tries by few samples each, {} failed; from {} down to {}, by {}{}", steps.size(),
                  failed, time_text(greatest), time_text(least), name_of(*best),
                  each > 1 ? fmt::format("; one of {} is drawn", each) : "");
  Markup html = figure(id, "Search", words + '.', kHeight, shapes);
  html += table.folded();
  return html;
}

}  // namespace convtune::page
