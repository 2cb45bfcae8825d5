// Numbers as a page shows them: those of convtune/units.h in typographic letters, and shares and counts.
#pragma once

#include <string>
#include <string_view>

#include "convtune/units.h"

namespace convtune::page {

inline Scale scale_of_us(double least_us, double most_us = 0) {
  return convtune::scale_of_us(least_us, most_us, Letters::typographic);
}
inline std::string time_text(double us) {
  return convtune::time_text(us, Letters::typographic);
}
inline std::string measured_text(double us, double mad_us, bool spread) {
  return convtune::measured_text(us, mad_us, spread, Letters::typographic);
}

std::string flops_text(double per_second);  // "412 GFLOP/s"; three digits
std::string bytes_text(double per_second);  // "51.2 GB/s"
std::string percent(double share);          // "12.3 %"
// Three digits and a prefix: "1.2 G", "340 k", "12"; and before a unit, "1.2 GFLOP", "12 FLOP".
std::string short_number(double value);
std::string with_prefix(double value, std::string_view unit);

}  // namespace convtune::page
