// See svg.h.
#include "page/svg.h"

#include <algorithm>
#include <cmath>

namespace convtune::page {
namespace {

constexpr int kMostTicks = 12;

// A tenth of a pixel.
std::string place(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::vector<double> decades(double low, double high) {
  const double first = std::ceil(std::log10(low) - 1e-9), last = std::floor(std::log10(high) + 1e-9);
  const double step = std::max(1.0, std::ceil((last - first + 1) / kMostTicks));
  std::vector<double> ticks;
  const bool few = last - first < 2;
  for (double power = first - 1; power <= last && ticks.size() < 3 * kMostTicks; power += step)
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, power);
      if ((digit == 1 || few) && value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        ticks.push_back(value);
    }
  return ticks;
}

Markup grid_lines(const std::string& lines) {
  return lines.empty() ? Markup{} : markup("<path class=\"grid\" d=\"{}\"/>", lines);
}

}  // namespace

Axis::Axis(double low, double high, double from, double to, bool logarithmic)
    : low_(low), high_(high > low ? high : low + 1), from_(from), to_(to), logarithmic_(logarithmic) {}

double Axis::at(double value) const {
  const double share =
      logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return from_ + (to_ - from_) * std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
}

std::vector<double> Axis::ticks() const {
  if (logarithmic_) return decades(low_, high_);
  const double rough = (high_ - low_) / 6, power = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 1.5   ? 1
                               : rough / power < 3.5 ? 2
                               : rough / power < 7.5 ? 5
                                                     : 10);
  std::vector<double> ticks;
  for (double value = std::ceil(low_ / step - 1e-9) * step;
       value <= high_ + 1e-9 * step && ticks.size() < kMostTicks; value += step)
    ticks.push_back(std::abs(value) < 1e-9 * step ? 0 : value);
  return ticks;
}

Markup line(Point from, Point to, std::string_view look) {
  return markup("<path class=\"{}\" d=\"M{} {}L{} {}\"/>", look, place(from.x), place(from.y), place(to.x),
                place(to.y));
}

Markup path(const std::vector<Point>& points, std::string_view look) {
  std::string steps;
  for (const Point& point : points)
    steps += fmt::format("{}{} {}", steps.empty() ? 'M' : 'L', place(point.x), place(point.y));
  return markup("<path class=\"{}\" d=\"{}\"/>", look, steps);
}

Markup rectangle(Point corner, double width, double height, std::string_view look) {
  return markup("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", look, place(corner.x),
                place(corner.y), place(std::max(0.0, width)), place(std::max(0.0, height)));
}

Markup label(Point at, std::string_view text, Anchor anchor, std::string_view look) {
  Markup attributes;
  if (anchor != Anchor::start)
    attributes += markup(" text-anchor=\"{}\"", anchor == Anchor::end ? "end" : "middle");
  if (!look.empty()) attributes += markup(" class=\"{}\"", look);
  return markup("<text x=\"{}\" y=\"{}\"{}>{}</text>", place(at.x), place(at.y), attributes, text);
}

Markup mark(Point at, Mark kind, std::string_view look) {
  const std::string x = place(at.x), y = place(at.y);
  switch (kind) {
    case Mark::disc:
      return markup("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"5\"/>", look, x, y);
    case Mark::diamond:
      return markup("<path class=\"{}\" d=\"M{} {}l5.5 5.5l-5.5 5.5l-5.5-5.5z\"/>", look, x,
                    place(at.y - 5.5));
    case Mark::dot:
      return markup("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", look, x, y);
    case Mark::cross:
      return markup("<path class=\"{}\" d=\"M{} {}l6 6m0-6l-6 6\"/>", look, place(at.x - 3), place(at.y - 3));
  }
  return {};
}

Markup dots(const std::vector<Point>& points, std::string_view look) {
  std::string places;
  for (const Point& point : points) places += fmt::format("M{} {}h0", place(point.x), place(point.y));
  return points.empty() ? Markup{} : markup("<path class=\"dots {}\" d=\"{}\"/>", look, places);
}

Markup horizontal_axis(const Axis& axis, double top, double bottom, std::string_view title,
                       std::string (*text)(double)) {
  std::string grid;
  Markup numbers;
  for (const double tick : axis.ticks()) {
    const std::string x = place(axis.at(tick));
    if (top < bottom) grid += fmt::format("M{} {}V{}", x, place(top), place(bottom));
    numbers += markup("<text x=\"{}\" y=\"{}\">{}</text>", x, place(bottom + 18), text(tick));
  }
  return markup("{}<g class=\"tick\" text-anchor=\"middle\">{}</g>{}", grid_lines(grid), numbers,
                label({axis.at(axis.high()), bottom + 36}, title, Anchor::end, "tick"));
}

Markup vertical_axis(const Axis& axis, double left, double right, std::string_view title,
                     std::string (*text)(double)) {
  std::string grid;
  Markup numbers;
  for (const double tick : axis.ticks()) {
    const double y = axis.at(tick);
    grid += fmt::format("M{} {}H{}", place(left), place(y), place(right));
    numbers += markup("<text x=\"{}\" y=\"{}\">{}</text>", place(left - 8), place(y + 4), text(tick));
  }
  const double top = std::min(axis.at(axis.low()), axis.at(axis.high()));
  return markup("{}<g class=\"tick\" text-anchor=\"end\">{}</g>{}", grid_lines(grid), numbers,
                label({std::max(0.0, left - 64), top - 14}, title, Anchor::start, "tick"));
}

Markup figure(std::string_view id, std::string_view title, std::string_view words,
              const std::function<Drawing(const Room&)>& draw, std::string_view note, Rooms rooms) {
  const auto svg = [&](const Room& room, std::string_view look, const Markup& inside) {
    const Drawing drawing = draw(room);
    return markup(
        "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-t\" "
        "aria-describedby=\"{}-d\">{}\n{}\n</svg>",
        look, place(room.width), place(drawing.height), id, id, inside, drawing.shapes);
  };
  // The first one has the words, which name the second one, too.
  const Markup named = markup("<title id=\"{}-t\">{}</title>{}", id, title,
                              note.empty() ? Markup{} : markup("<desc id=\"{}-d\">{}</desc>", id, words));
  Markup drawn;
  if (rooms == Rooms::small) {
    drawn = svg({360, true}, "small", named);
  } else {
    drawn = svg({720, false}, "wide", named);
    drawn += svg({360, true}, "narrow", {});
  }
  return markup("<figure>{}\n<figcaption{}>{}</figcaption></figure>\n", drawn,
                note.empty() ? markup(" id=\"{}-d\"", id) : Markup{}, note.empty() ? words : note);
}

}  // namespace convtune::page
