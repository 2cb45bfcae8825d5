// The charts of a page. Each is a <figure> that says in words what it shows; a table beside it has its
// numbers.
#pragma once

#include <string>
#include <vector>

#include "convtune/contest.h"
#include "convtune/tuner.h"
#include "page/markup.h"
#include "page/svg.h"

namespace convtune::page {

enum class Who { own, best_peer, peer };

// The speed that a device allows work of an intensity: least of two roofs.
struct Roof {
  std::string name;                                   // "tf32": what is multiplied
  double flops_per_second = 0, bytes_per_second = 0;  // 0: not known
};
struct RooflineMark {
  double flops_per_byte = 0, flops_per_second = 0;
  Who who = Who::peer;
  std::string name;  // beside the mark; may be empty
};
Markup roofline_chart(const std::string& id, const std::vector<RooflineMark>& marks,
                      const std::vector<Roof>& roofs);

struct TimeBar {
  std::string name;
  double time_us = 0, mad_us = 0;
  std::int64_t samples = 0;  // 1: nothing is known of the spread
  Who who = Who::peer;
  std::string group = {};  // a line of its own above the bar
};
// Bars from 0; `floor_us`: the roofline's, 0 for none.
// A bar that is many times the least is cut, and says so; of different layers none is.
enum class Cut { outliers, none };
Markup time_bars(const std::string& id, const std::string& title, const std::vector<TimeBar>& bars,
                 double floor_us, Cut cut = Cut::outliers, Rooms rooms = Rooms::both);

// Rounds as paired differences, the interval of their median, and what was asked; and a folded table of the
// rounds, where that is wanted; without it the chart is a small one.
Markup contest_chart(const std::string& id, const HeldContest& contest, bool with_rounds);

// Times as they were tried, and the best so far; each that was best for a while as a folded table. `most`:
// points.
Markup search_chart(const std::string& id, const std::vector<SearchStep>& steps, std::size_t most);

}  // namespace convtune::page
