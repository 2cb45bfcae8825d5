// The section on a model's convolutions: where the time goes, and what is gained, most time first.
#include <algorithm>
#include <utility>

#include "page/charts.h"
#include "page/html_table.h"
#include "page/numbers.h"
#include "page/sections.h"

namespace convtune::page {
namespace {

constexpr std::size_t kMostBars = 12;  // layers drawn

struct Line {
  std::size_t row;  // its number among all
  double us, peer_us;
};

std::string first_layer(const ReportRow& row) {
  return row.layers.empty() ? key(row.comparison.problem) : row.layers.front();
}

std::vector<Line> worst_first(const std::vector<ReportRow>& rows) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const ProviderResult* const own = own_result(rows[i]); own && own->time_us > 0) {
      const ProviderResult* const peer = best_peer(rows[i].comparison);
      const auto count = static_cast<double>(rows[i].count);
      lines.push_back({i, count * own->time_us, count * (peer ? peer : own)->time_us});
    }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.peer_us > b.peer_us; });
  return lines;
}

Markup bars(const std::vector<ReportRow>& rows, const std::vector<Line>& lines,
            const std::vector<std::string>& names, const std::string& id) {
  std::vector<TimeBar> drawn;
  for (std::size_t i = 0; i < std::min(lines.size(), kMostBars); ++i) {
    const ReportRow& row = rows[lines[i].row];
    std::string name = names[i] + (row.count > 1 ? fmt::format(" ×{}", row.count) : "");
    if (best_peer(row.comparison))
      drawn.push_back({"best peer", lines[i].peer_us, 0, 0, Who::best_peer, std::exchange(name, "")});
    drawn.push_back({"convtune", lines[i].us, 0, 0, Who::own, name});
  }
  return time_bars(id, "Time of the layers that take most, all runs of a pass", drawn, 0, Cut::none);
}

}  // namespace

bool is_model(const std::vector<ReportRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const ReportRow& row) { return !row.layers.empty(); });
}

Markup model_times_section(const std::vector<ReportRow>& rows, const Place& place) {
  if (!is_model(rows)) return {};
  const ModelTimes all = model_times(rows);
  const std::vector<Line> lines = worst_first(rows);
  Markup html = heading(place.level, "Where the time goes", place.id + "-model");
  if (lines.empty() || all.us <= 0) return html += paragraph("No convolution has a time."), html;
  std::vector<std::string> full;
  for (const Line& line : lines) full.push_back(first_layer(rows[line.row]));
  const auto [names, left_out] = short_names(full);
  const Scale time = scale_of_us(std::min(lines.back().us, lines.back().peer_us), lines.front().peer_us);
  Table table("a model's convolutions, all runs of each in a pass, most time first",
              {{"layer"},
               {"runs", true, true},
               {"share", true},
               {fmt::format("best peer {}", time.unit), true, true},
               {fmt::format("convtune {}", time.unit), true, true},
               {"speed-up", true},
               {fmt::format("gain {}", time.unit), true, true},
               {"algorithm", false, true}},
              true);
  const auto text = [](const std::string& words) { return Markup{escaped(words)}; };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    const ReportRow& row = rows[line.row];
    const std::string more = row.layers.size() > 1 ? fmt::format(" and {} more", row.layers.size() - 1) : "";
    const bool has_peer = best_peer(row.comparison) != nullptr;
    table.add_row({markup("<a href=\"#{}-{}\">{}</a>", place.id, line.row + 1, names[i] + more),
                   text(fmt::format("{}", row.count)), text(percent(line.peer_us / all.best_peer_us)),
                   text(has_peer ? time(line.peer_us) : "-"), text(time(line.us)),
                   text(has_peer ? fmt::format("{:.2f}×", line.peer_us / line.us) : "-"),
                   text(time(line.peer_us - line.us)), text(own_result(row)->algorithm)});
  }
  html += bars(rows, lines, names, place.id + "-layers");
  if (!left_out.empty()) html += paragraph(left_out);
  html += table.render();
  if (all.without > 0)
    html +=
        paragraph(fmt::format("{} {} no time, and {} no part of this.", all.without,
                              all.without == 1 ? "kind has" : "kinds have", all.without == 1 ? "is" : "are"));
  return html;
}

}  // namespace convtune::page
