// Numbers as people read them: times and rates in the unit that suits them, one unit a column.
#pragma once

#include <string>

#include "convtune/language.h"

namespace convtune {

enum class Letters { ascii, typographic };  // "us", "2.00x"; "µs", "2.00×"

// The unit and the decimals that the numbers of a column share, so that their points line up.
struct Scale {
  const char* unit = "";
  double size = 1;  // for the unit
  int decimals = 0;

  std::string operator()(double value) const;  // without the unit
};
Scale scale_of_us(double least_us,
                  Letters letters = Letters::ascii);  // us, ms or s; four digits of the least
// A unit for numbers from `least_us` to `most_us`: a larger unit where those would have five digits and
// more.
Scale scale_of_us(double least_us, double most_us, Letters letters = Letters::ascii);
Scale scale_of_flops(double most_per_second);  // GFLOP/s or TFLOP/s; four digits of the most
Scale scale_of_bytes(double most_per_second);  // GB/s or TB/s

std::string time_text(double us, Letters letters = Letters::ascii);  // "9.368 ms"
// A median, and, with `spread`, how far samples lie from it as a rule: "9.368 ms ±0.4 %".
std::string measured_text(double us, double mad_us, bool spread, Letters letters = Letters::ascii);

}  // namespace convtune
