// See numbers.h.
#include "page/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace convtune::page {
namespace {

constexpr double kThousand = 999.95;

}  // namespace

std::string short_number(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value) || std::abs(value) < 0.01 || std::abs(value) >= 1e18)
    return fmt::format("{:.3g}", value);
  const double size = std::abs(value);
  const int prefix = size < kThousand          ? 0
                     : size < 1e3 * kThousand  ? 1
                     : size < 1e6 * kThousand  ? 2
                     : size < 1e9 * kThousand  ? 3
                     : size < 1e12 * kThousand ? 4
                                               : 5;
  const std::string digits = fmt::format("{:.3g}", value / std::pow(1000.0, prefix));
  return prefix == 0 ? digits : fmt::format("{} {}", digits, "kMGTP"[prefix - 1]);
}

std::string with_prefix(double value, std::string_view unit) {
  const std::string number = short_number(value);
  return fmt::format("{}{}{}", number, number.find(' ') == number.npos ? " " : "", unit);
}

std::string flops_text(double per_second) {
  return with_prefix(per_second, "FLOP/s");
}

std::string bytes_text(double per_second) {
  return with_prefix(per_second, "B/s");
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", std::round(share * 1000) / 10 + 0.0);  // without "-0.0"
}

}  // namespace convtune::page
