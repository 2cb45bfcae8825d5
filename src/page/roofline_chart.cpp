// The roofline: how fast each way runs, and how fast work of its intensity can run at all.
#include <algorithm>
#include <cmath>
#include <limits>

#include "page/charts.h"
#include "page/numbers.h"
#include "page/svg.h"

namespace convtune::page {
namespace {

constexpr double kTop = 44, kBottom = 372, kHeight = 420;
constexpr double kLetter = 6.6, kLine = 13;  // per label

// Labels that do not lie on one another. Those that find no place are left out: the table has their names.
class Labels {
 public:
  Labels(double left, double right) : left_(left), right_(right) {}
  void keep_free(Point at, double radius) {
    taken_.push_back({at.x - radius, at.y - radius, at.x + radius, at.y + radius});
  }
  Markup beside(Point at, const std::string& text) {
    const double width = kLetter * static_cast<double>(text.size());
    for (const auto& [x, y, anchor] : {std::tuple{at.x + 9, at.y + 4, Anchor::start},
                                       {at.x - 9, at.y + 4, Anchor::end},
                                       {at.x, at.y - 9, Anchor::middle},
                                       {at.x, at.y + 17, Anchor::middle}}) {
      const double left = anchor == Anchor::start ? x : anchor == Anchor::end ? x - width : x - width / 2;
      const Box box{left, y - kLine + 3, left + width, y + 2};
      if (box.left < left_ || box.right > right_ || box.top < kTop || box.bottom > kBottom) continue;
      if (std::any_of(taken_.begin(), taken_.end(), [&](const Box& other) { return box.meets(other); }))
        continue;
      taken_.push_back(box);
      return label({x, y}, text, anchor);
    }
    return {};
  }

 private:
  struct Box {
    double left, top, right, bottom;
    bool meets(const Box& other) const {
      return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
  };
  double left_, right_;
  std::vector<Box> taken_;
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void add(double value) {
    if (!std::isfinite(value) || value <= 0) return;
    low = std::min(low, value), high = std::max(high, value);
  }
};

std::string in_words(const std::vector<RooflineMark>& marks, const std::vector<Roof>& roofs) {
  std::string words = "Arithmetic intensity against speed, both logarithmic.";
  for (const Roof& roof : roofs) {
    if (roof.flops_per_second > 0)
      words += fmt::format(" Roof of {}: {}.", roof.name, flops_text(roof.flops_per_second));
    if (roof.bytes_per_second > 0)
      words += fmt::format(" Roof of memory: {}.", bytes_text(roof.bytes_per_second));
  }
  Range own;
  for (const RooflineMark& one : marks)
    if (one.who == Who::own) own.add(one.flops_per_second);
  if (own.high > 0)
    words += own.low == own.high
                 ? fmt::format(" convtune: {}.", flops_text(own.high))
                 : fmt::format(" convtune: {} to {}.", flops_text(own.low), flops_text(own.high));
  return words;
}

// The sloping roof up to the level one, where both are known.
Markup roof_lines(const Roof& roof, const Axis& x, const Axis& y, Labels& labels, bool with_memory) {
  Markup shapes;
  const double right = x.at(x.high());
  const double peak = roof.flops_per_second, copy = roof.bytes_per_second;
  const double ridge = peak > 0 && copy > 0 ? std::clamp(peak / copy, x.low(), x.high()) : 0;
  if (peak > 0) {
    const double from = ridge > 0 ? x.at(ridge) : x.at(x.low());
    shapes += line({from, y.at(peak)}, {right, y.at(peak)}, "roof");
    const std::string text = fmt::format("{} {}", roof.name, flops_text(peak));
    labels.keep_free({right - kLetter * static_cast<double>(text.size()) / 2, y.at(peak) - 8}, 8);
    shapes += label({right - 4, y.at(peak) - 6}, text, Anchor::end, "of-roof");
  }
  if (copy > 0 && with_memory) {
    // If it leaves the plot below or above, it is cut there.
    const double first = std::max(x.low(), y.low() / copy);
    const double last = std::min(ridge > 0 ? ridge : x.high(), y.high() / copy);
    if (first < last) {
      const Point from{x.at(first), y.at(first * copy)}, to{x.at(last), y.at(last * copy)};
      shapes += line(from, to, "roof");
      const Point middle{(from.x + to.x) / 2, (from.y + to.y) / 2};
      const double slope = std::atan2(to.y - from.y, to.x - from.x) * 180 / 3.14159265358979;
      shapes += markup(
          "<text class=\"of-roof\" text-anchor=\"middle\" transform=\"translate({:.1f} "
          "{:.1f})rotate({:.1f})\">"
          "memory {}</text>",
          middle.x - 7, middle.y - 7, slope, bytes_text(copy));
    }
  }
  return shapes;
}

Markup legend(double right) {
  struct Entry {
    Mark kind;
    const char* look;
    const char* text;
    double x;
  };
  Markup shapes;
  for (const auto& [kind, look, text, x] : {Entry{Mark::disc, "own", "convtune", right - 270},
                                            {Mark::diamond, "best", "best peer", right - 180},
                                            {Mark::dot, "peer", "other peers", right - 86}}) {
    shapes += mark({x, 16}, kind, look);
    shapes += label({x + 10, 20}, text);
  }
  return shapes;
}

Drawing draw(const std::vector<RooflineMark>& marks, const std::vector<Roof>& roofs, const Range& intensity,
             const Range& speed, const Room& room) {
  const double left = room.narrow ? 56 : 88, right = room.width - (room.narrow ? 4 : 16);
  const Axis x(intensity.low / 2.5, intensity.high * 2.5, left, right, true);
  const Axis y(speed.low / 2, speed.high * 2, kBottom, kTop, true);
  Markup shapes =
      horizontal_axis(x, kTop, kBottom, "FLOP per byte", [](double value) { return short_number(value); });
  shapes += vertical_axis(y, left, right, "FLOP/s", [](double value) { return short_number(value); });
  Labels labels(left, right);
  double copy = 0;
  for (const Roof& roof : roofs) {
    shapes += roof_lines(roof, x, y, labels, roof.bytes_per_second != copy);
    copy = roof.bytes_per_second;
  }
  const auto at = [&](const RooflineMark& one) {
    return Point{x.at(one.flops_per_byte), y.at(one.flops_per_second)};
  };
  std::vector<Point> peers;
  for (const RooflineMark& one : marks)
    if (one.who == Who::peer && one.flops_per_second > 0) peers.push_back(at(one));
  shapes += dots(peers, "peer");
  // Whatever matters most is drawn last, over the others, and named first.
  for (const Who who : {Who::best_peer, Who::own})
    for (const RooflineMark& one : marks)
      if (one.who == who && one.flops_per_second > 0) {
        shapes += who == Who::own ? mark(at(one), Mark::disc, "own") : mark(at(one), Mark::diamond, "best");
        labels.keep_free(at(one), 5);
      }
  for (const Who who : {Who::own, Who::best_peer})
    for (const RooflineMark& one : marks)
      if (one.who == who && !one.name.empty() && one.flops_per_second > 0)
        shapes += labels.beside(at(one), one.name);
  shapes += legend(right);
  return {kHeight, shapes};
}

}  // namespace

Markup roofline_chart(const std::string& id, const std::vector<RooflineMark>& marks,
                      const std::vector<Roof>& roofs) {
  Range intensity, speed;
  for (const RooflineMark& one : marks) intensity.add(one.flops_per_byte), speed.add(one.flops_per_second);
  if (speed.high == 0 || intensity.high == 0) return {};
  for (const Roof& roof : roofs) {
    speed.add(roof.flops_per_second);
    if (roof.bytes_per_second > 0) {
      speed.add(std::min(
          roof.bytes_per_second * intensity.low,
          roof.flops_per_second > 0 ? roof.flops_per_second : roof.bytes_per_second * intensity.high));
      if (roof.flops_per_second > 0) intensity.add(roof.flops_per_second / roof.bytes_per_second);
    }
  }
  return figure(
      id, "Roofline", in_words(marks, roofs),
      [&](const Room& room) { return draw(marks, roofs, intensity, speed, room); },
      "Higher is faster. The roofs were measured on this device; none but a Winograd kernel, which "
      "makes fewer products than are counted, and layers whose tensors stay in a CPU's "
      "caches can be above them.");
}

}  // namespace convtune::page
