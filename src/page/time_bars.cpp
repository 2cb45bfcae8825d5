// Times as bars from 0, with the median absolute deviation of their samples.
#include <algorithm>
#include <cmath>

#include "page/charts.h"
#include "page/numbers.h"
#include "page/svg.h"

namespace convtune::page {
namespace {

constexpr double kTop = 24, kBar = 16, kGap = 10, kLine = 17;
constexpr double kNumbers = 122;           // right of the bars
constexpr double kMostTimesTheLeast = 12;  // a bar that is longer is cut
constexpr std::size_t kNameLetters = 28;   // as many as have room in bold, half of them capitals
constexpr std::size_t kMostInWords = 4;    // of many bars, those that matter

// Names of configs are told apart by their ends as much as by their beginnings.
std::string shortened(const std::string& name, std::size_t letters) {
  if (name.size() <= letters) return name;
  std::size_t first = letters / 2 - 1, second = name.size() - (letters / 2 - 1);
  while (first > 0 && (static_cast<unsigned char>(name[first]) & 0xc0) == 0x80) --first;
  while (second < name.size() && (static_cast<unsigned char>(name[second]) & 0xc0) == 0x80) ++second;
  return name.substr(0, first) + "…" + name.substr(second);
}

bool has_time(const TimeBar& bar) {
  return std::isfinite(bar.time_us) && bar.time_us > 0;
}

struct Scales {
  double size, most, floor_us;  // the size of what is drawn, in microseconds
};

bool is_cut(const TimeBar& bar, const Scales& scales) {
  return bar.time_us > scales.most * (1 + 1e-9);
}
bool has_spread(const TimeBar& bar, const Scales& scales) {
  return bar.samples > 1 && bar.mad_us > 0 && !is_cut(bar, scales);
}

// In a narrow room a name has the line above its bar; the short ones below a group's have room beside theirs.
Drawing draw(const std::vector<TimeBar>& bars, const Scales& scales, const Room& room) {
  const bool grouped =
      std::any_of(bars.begin(), bars.end(), [](const TimeBar& bar) { return !bar.group.empty(); });
  const bool above = room.narrow && !grouped;
  const double left = grouped ? 84 : above ? 0.5 : 250;
  const Axis x(0, scales.most / scales.size, left, room.width - kNumbers);
  Markup shapes;
  double y = kTop;
  for (const TimeBar& bar : bars) {
    if (!has_time(bar)) continue;
    const bool own = bar.who == Who::own;
    if (!bar.group.empty()) {
      const double letters = (room.width - 4) / 6.6;
      shapes += label({0, y + kLine - 3}, shortened(bar.group, static_cast<std::size_t>(letters)),
                      Anchor::start, "strong");
      y += kLine + 3;
    }
    if (above) {
      shapes += label({0, y + kLine - 5}, shortened(bar.name, 2 * kNameLetters - 4), Anchor::start,
                      own ? "strong" : "");
      y += kLine;
    }
    const double end = x.at(bar.time_us / scales.size), middle = y + kBar / 2;
    if (!above)
      shapes +=
          label({left - 8, middle + 4}, shortened(bar.name, kNameLetters), Anchor::end, own ? "strong" : "");
    shapes += rectangle({left, y}, end - left, kBar,
                        own                         ? "own"
                        : bar.who == Who::best_peer ? "best"
                                                    : "peer");
    double text = end;
    if (has_spread(bar, scales)) {
      const double low = x.at((bar.time_us - bar.mad_us) / scales.size),
                   high = x.at((bar.time_us + bar.mad_us) / scales.size);
      shapes += markup("<path class=\"spread\" d=\"M{0:.1f} {1:.1f}v8m0-4H{2:.1f}m0-4v8\"/>", low, middle - 4,
                       high);
      text = high;
    }
    shapes +=
        label({text + 6, middle + 4},
              (is_cut(bar, scales) ? "» " : "") + measured_text(bar.time_us, bar.mad_us, bar.samples > 1),
              Anchor::start, own ? "strong" : "");
    // The bars of a group stand close.
    y += kBar + (grouped && &bar != &bars.back() && (&bar + 1)->group.empty() ? 3 : kGap);
  }
  const double bottom = y - kGap / 2;
  if (!grouped)
    shapes += line({left, kTop - 2}, {left, bottom}, "zero");  // each bar has its number beside it
  if (scales.floor_us > 0) {
    const double at = x.at(scales.floor_us / scales.size);
    const Anchor anchor = at - left < 50 ? Anchor::start : Anchor::middle;
    shapes += line({at, kTop - 8}, {at, bottom}, "floor");
    shapes += label({at, kTop - 12}, "roofline " + time_text(scales.floor_us), anchor, "tick");
  }
  return {bottom + 8, shapes};
}

}  // namespace

Markup time_bars(const std::string& id, const std::string& title, const std::vector<TimeBar>& bars,
                 double floor_us, Cut cut_at, Rooms rooms) {
  double least = 0, most = 0;
  for (const TimeBar& bar : bars) {
    if (!has_time(bar)) continue;
    least = least > 0 ? std::min(least, bar.time_us) : bar.time_us;
    most = std::max(most, bar.time_us + std::max(0.0, bar.mad_us));
  }
  if (least == 0) return {};
  if (!std::isfinite(floor_us) || floor_us <= 0 || floor_us > most) floor_us = 0;
  if (cut_at == Cut::outliers) most = std::min(most, kMostTimesTheLeast * least);
  const Scales scales{scale_of_us(least).size, most, floor_us};
  std::string words, group;
  for (const TimeBar& bar : bars) {
    if (!has_time(bar)) continue;
    if (!bar.group.empty()) group = bar.group + ", ";
    if (bar.who != Who::peer || bars.size() <= kMostInWords)
      words += fmt::format("{}{}{}: {}", words.empty() ? "" : "; ", group, bar.name,
                           measured_text(bar.time_us, bar.mad_us, bar.samples > 1));
  }
  if (floor_us > 0) words += fmt::format("; roofline: {}", time_text(floor_us));
  // Below the chart stands what is in it.
  const auto some = [&](bool (*has)(const TimeBar&, const Scales&)) {
    return std::any_of(bars.begin(), bars.end(),
                       [&](const TimeBar& bar) { return has_time(bar) && has(bar, scales); });
  };
  std::string note = "Shorter is faster.";
  if (some(has_spread)) note += " Medians; a whisker is the median absolute deviation of the samples.";
  if (some(is_cut)) note += " A bar with » beside it is cut.";
  return figure(
      id, title, words + '.', [&](const Room& room) { return draw(bars, scales, room); }, note, rooms);
}

}  // namespace convtune::page
