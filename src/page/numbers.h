// Numbers as a page shows them: one unit and one number of decimals a column, a unit that suits a single one.
#pragma once

#include <string>
#include <string_view>

namespace convtune::page {

// Of a column.
struct Scale {
  const char* unit = "";
  double size = 1;  // of the unit
  int decimals = 0;

  std::string operator()(double value) const;  // without the unit
};
Scale scale_of_us(double least_us);            // µs, ms or s; four digits of the least
Scale scale_of_flops(double most_per_second);  // GFLOP/s or TFLOP/s; four digits of the most
Scale scale_of_bytes(double most_per_second);  // GB/s or TB/s

std::string time_text(double us);                                  // "9.368 ms"
std::string flops_text(double per_second);                         // "412 GFLOP/s"; three digits
std::string bytes_text(double per_second);                         // "51.2 GB/s"
std::string percent(double share);                                 // "12.3 %"
std::string measured_text(double us, double mad_us, bool spread);  // "9.368 ms ±0.4 %"
// Three digits and a prefix: "1.2 G", "340 k", "12"; and before a unit, "1.2 GFLOP", "12 FLOP".
std::string short_number(double value);
std::string with_prefix(double value, std::string_view unit);

}  // namespace convtune::page
