#include "convtune/units.h"

#include <fmt/format.h>

namespace convtune {
namespace {

// 1000 is where a number in the small unit would have a fourth digit before the point; rounding counts.
constexpr double kThousand = 999.95;

Scale scale(const char* unit, double size, double reference) {
  const double value = reference / size;
  return {unit, size, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0};
}

}  // namespace

std::string Scale::operator()(double value) const {
  return fmt::format("{:.{}f}", value / size, decimals);
}

Scale scale_of_us(double least_us, Letters letters) {
  if (least_us < kThousand) return scale(letters == Letters::ascii ? "us" : "µs", 1, least_us);
  return least_us < 1e3 * kThousand ? scale("ms", 1e3, least_us) : scale("s", 1e6, least_us);
}

Scale scale_of_us(double least_us, double most_us, Letters letters) {
  const Scale small = scale_of_us(least_us, letters);
  if (most_us < 10 * kThousand * small.size || small.size >= 1e6) return small;
  return {small.size == 1 ? "ms" : "s", 1e3 * small.size, 3};
}

Scale scale_of_flops(double most_per_second) {
  return most_per_second < 1e9 * kThousand ? scale("GFLOP/s", 1e9, most_per_second)
                                           : scale("TFLOP/s", 1e12, most_per_second);
}

Scale scale_of_bytes(double most_per_second) {
  return most_per_second < 1e9 * kThousand ? scale("GB/s", 1e9, most_per_second)
                                           : scale("TB/s", 1e12, most_per_second);
}

std::string time_text(double us, Letters letters) {
  const Scale scale = scale_of_us(us, letters);
  return scale(us) + ' ' + scale.unit;
}

std::string measured_text(double us, double mad_us, bool spread, Letters letters) {
  return time_text(us, letters) + (spread && us > 0 ? fmt::format(" ±{:.1f} %", 100 * mad_us / us) : "");
}

}  // namespace convtune
