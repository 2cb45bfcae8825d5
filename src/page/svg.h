// The parts that charts are drawn with: axes, shapes by the classes of the style sheet, the frame round
// them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "page/markup.h"

namespace convtune::page {

// From values to places. A logarithmic one has values above 0 alone.
class Axis {
 public:
  Axis(double low, double high, double from, double to, bool logarithmic = false);

  double at(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  // Round values, a dozen at most.
  std::vector<double> ticks() const;

 private:
  double low_, high_, from_, to_;
  bool logarithmic_;
};

struct Point {
  double x = 0, y = 0;
};

enum class Anchor { start, middle, end };

// Shapes. `look`: a class of the style sheet.
Markup line(Point from, Point to, std::string_view look);
Markup path(const std::vector<Point>& points, std::string_view look);
Markup rectangle(Point corner, double width, double height, std::string_view look);
Markup label(Point at, std::string_view text, Anchor anchor = Anchor::start, std::string_view look = {});
// Marks, told apart by shape as well as by colour: a disc, a square on its point, a dot, a cross.
enum class Mark { disc, diamond, dot, cross };
Markup mark(Point at, Mark kind, std::string_view look);
// Many small discs as one shape.
Markup dots(const std::vector<Point>& points, std::string_view look);

// Lines and numbers of an axis of the plot between `low` and `high` of the other one.
Markup horizontal_axis(const Axis& axis, double top, double bottom, std::string_view title,
                       std::string (*text)(double));
Markup vertical_axis(const Axis& axis, double left, double right, std::string_view title,
                     std::string (*text)(double));

// The room of a chart, in pixels: a column of a page, or the narrow one of a telephone.
struct Room {
  double width;
  bool narrow;
};
struct Drawing {
  double height;
  Markup shapes;
};

// In which rooms a chart is drawn: a page of many cases has it small alone, so that it is not large.
enum class Rooms { both, small };

// <figure> with an <svg> for each room, of which the style sheet shows one. `words`: what the chart shows,
// for who does not see it; and for all, below it, where there is no `note`.
Markup figure(std::string_view id, std::string_view title, std::string_view words,
              const std::function<Drawing(const Room&)>& draw, std::string_view note = {},
              Rooms rooms = Rooms::both);

}  // namespace convtune::page
