// Times as bars from 0, with the median absolute deviation of their samples.
#include <algorithm>
#include <cmath>

#include "page/charts.h"
#include "page/numbers.h"
#include "page/svg.h"

namespace convtune::page {
namespace {

constexpr double kNames = 250, kRight = 600, kTop = 24, kRow = 26, kBar = 16;
constexpr double kMostTimesTheLeast = 12;  // a bar that is longer is cut
constexpr std::size_t kNameLetters = 28;   // as many as have room in bold, half of them capitals
constexpr std::size_t kMostInWords = 4;    // of many bars, those that matter

// Names of configs are told apart by their ends as much as by their beginnings.
std::string shortened(const std::string& name) {
  if (name.size() <= kNameLetters) return name;
  std::size_t first = kNameLetters / 2 - 1, second = name.size() - (kNameLetters / 2 - 1);
  while (first > 0 && (static_cast<unsigned char>(name[first]) & 0xc0) == 0x80) --first;
  while (second < name.size() && (static_cast<unsigned char>(name[second]) & 0xc0) == 0x80) ++second;
  return name.substr(0, first) + "…" + name.substr(second);
}

}  // namespace

Markup time_bars(const std::string& id, const std::string& title, const std::vector<TimeBar>& bars,
                 double floor_us, Cut cut_at) {
  double least = 0, most = 0;
  for (const TimeBar& bar : bars) {
    if (!std::isfinite(bar.time_us) || bar.time_us <= 0) continue;
    least = least > 0 ? std::min(least, bar.time_us) : bar.time_us;
    most = std::max(most, bar.time_us + std::max(0.0, bar.mad_us));
  }
  if (least == 0) return {};
  if (!std::isfinite(floor_us) || floor_us <= 0 || floor_us > most) floor_us = 0;
  const Scale scale = scale_of_us(least);
  if (cut_at == Cut::outliers) most = std::min(most, kMostTimesTheLeast * least);
  const Axis x(0, most / scale.size, kNames, kRight);
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  Markup shapes =
      line({kNames, kTop - 2}, {kNames, bottom + 2}, "zero");  // each bar has its number beside it
  std::string words;
  double y = kTop + (kRow - kBar) / 2;
  for (const TimeBar& bar : bars) {
    if (!std::isfinite(bar.time_us) || bar.time_us <= 0) continue;
    const double end = x.at(bar.time_us / scale.size), middle = y + kBar / 2;
    const bool cut = bar.time_us > most * (1 + 1e-9);
    shapes += label({kNames - 8, middle + 4}, shortened(bar.name), Anchor::end,
                    bar.who == Who::own ? "strong" : "");
    shapes += rectangle({kNames, y}, end - kNames, kBar,
                        bar.who == Who::own         ? "own"
                        : bar.who == Who::best_peer ? "best"
                                                    : "peer");
    const bool spread = bar.samples > 1 && bar.mad_us > 0 && !cut;
    double text = end;
    if (spread) {
      const double low = x.at((bar.time_us - bar.mad_us) / scale.size),
                   high = x.at((bar.time_us + bar.mad_us) / scale.size);
      shapes += markup("<path class=\"spread\" d=\"M{0:.1f} {1:.1f}v8m0-4H{2:.1f}m0-4v8\"/>", low, middle - 4,
                       high);
      text = high;
    }
    const std::string value = measured_text(bar.time_us, bar.mad_us, bar.samples > 1);
    shapes += label({text + 6, middle + 4}, (cut ? "» " : "") + value, Anchor::start,
                    bar.who == Who::own ? "strong" : "");
    if (bar.who != Who::peer || bars.size() <= kMostInWords)
      words += fmt::format("{}{}: {}", words.empty() ? "" : "; ", bar.name, value);
    y += kRow;
  }
  if (floor_us > 0) {
    const double at = x.at(floor_us / scale.size);
    shapes += line({at, kTop - 8}, {at, bottom}, "floor");
    shapes += label({at, kTop - 12}, "roofline " + time_text(floor_us), Anchor::middle, "tick");
    words += fmt::format("; roofline: {}", time_text(floor_us));
  }
  return figure(id, title, words + '.', bottom + 8, shapes,
                "Shorter is faster. Medians; a whisker is the median absolute deviation of the samples.");
}

}  // namespace convtune::page
