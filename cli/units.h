// Numbers as people read them: times, rates and durations in the unit that suits them, one unit a column.
#pragma once

#include <string>

namespace convtune::cli {

// Of a column: the unit and the decimals that its numbers share, so that their points line up.
struct Scale {
  const char* unit;
  double divisor;
  int decimals;

  std::string operator()(double value) const;  // without the unit
};
Scale scale_of_us(double least_us);             // us, ms or s; four digits of the least
Scale scale_of_flops(double most_gflop_per_s);  // GFLOP/s or TFLOP/s; four digits of the most
Scale scale_of_bytes(double most_gb_per_s);     // GB/s or TB/s

std::string time_text(double us);           // "9.368 ms"
std::string duration_text(double seconds);  // "12 s", "2 min 05 s", "1 h 04 min"

}  // namespace convtune::cli
