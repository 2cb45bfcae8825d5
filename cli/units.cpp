// See units.h.
#include "units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace convtune::cli {
namespace {

Scale scale(const char* unit, double divisor, double reference) {
  const double value = reference / divisor;
  return {unit, divisor, value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0};
}

// 1000 is where a number in the small unit would have a fourth digit before the point; rounding counts.
constexpr double kThousand = 999.95;

}  // namespace

std::string Scale::operator()(double value) const {
  return fmt::format("{:.{}f}", value / divisor, decimals);
}

Scale scale_of_us(double least_us) {
  if (least_us < kThousand) return scale("us", 1, least_us);
  return least_us < kThousand * 1e3 ? scale("ms", 1e3, least_us) : scale("s", 1e6, least_us);
}

Scale scale_of_flops(double most_gflop_per_s) {
  return most_gflop_per_s < kThousand ? scale("GFLOP/s", 1, most_gflop_per_s)
                                      : scale("TFLOP/s", 1e3, most_gflop_per_s);
}

Scale scale_of_bytes(double most_gb_per_s) {
  return most_gb_per_s < kThousand ? scale("GB/s", 1, most_gb_per_s) : scale("TB/s", 1e3, most_gb_per_s);
}

std::string time_text(double us) {
  const Scale scale = scale_of_us(us);
  return scale(us) + ' ' + scale.unit;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace convtune::cli
