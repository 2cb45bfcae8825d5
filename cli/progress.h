// One line on stderr that says how far a long work is: redrawn in place on a terminal, else a plain
// line every few seconds.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "convtune/tuner.h"
#include "table.h"

namespace convtune::cli {

std::string duration_text(double seconds);  // "12 s", "2 min 05 s", "1 h 04 min"

// "2 min 05 s left, 12 s of this case, [2/9] alexnet_conv1: screen 34/120, best 1.234 ms (direct vectors=4)":
// a word that may be cut stands last. `seconds_behind`: of the cases that follow.
std::string progress_text(std::string_view label, const Progress& progress, double seconds_behind = 0);

class ProgressLine {
 public:
  // `seconds` is a clock, for tests; by default the steady one.
  ProgressLine(std::FILE* stream, const Style& style, std::function<double()> seconds = {});
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view text);  // drops what comes too soon after the last
  void clear();                      // before other output, so that nothing is left on the line

 private:
  std::FILE* stream_;
  Style style_;
  std::function<double()> seconds_;
  double last_;
  bool drawn_ = false;
};

}  // namespace convtune::cli
