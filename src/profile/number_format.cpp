// See number_format.h.
#include "profile/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

namespace convtune {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Digits with their separators, without a sign and an exponent; empty for what is no number at all. Blanks
// and apostrophes between digits, which some languages group by, are left out.
struct Parts {
  std::string digits, exponent;
  bool negative = false;
};

Parts parts_of(std::string_view text) {
  Parts parts;
  if (text.starts_with('-')) parts.negative = true, text.remove_prefix(1);
  if (const std::size_t at = text.find_first_of("eE"); at != text.npos) {
    parts.exponent = text.substr(at + 1);
    if (parts.exponent.starts_with('+')) parts.exponent.erase(0, 1);
    if (parts.exponent.find_first_not_of("-0123456789") != std::string::npos || parts.exponent.empty())
      return {};
    text = text.substr(0, at);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    constexpr std::string_view kGroups[] = {"\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x99", "'"};
    const auto group = std::find_if(std::begin(kGroups), std::end(kGroups),
                                    [&](std::string_view one) { return text.substr(i).starts_with(one); });
    if (group != std::end(kGroups))
      i += group->size() - 1;
    else if (is_digit(text[i]) || text[i] == '.' || text[i] == ',')
      parts.digits += text[i];
    else
      return {};
  }
  if (parts.digits.empty() || !is_digit(parts.digits.back()) || parts.digits.front() == ',') return {};
  return parts;
}

// One separator, three digits behind it and one to three before it.
bool is_ambiguous_digits(const std::string& digits) {
  const std::size_t at = digits.find_first_of(".,");
  return at != digits.npos && digits.find_first_of(".,", at + 1) == digits.npos && at >= 1 && at <= 3 &&
         digits.size() - at == 4 && digits[0] != '0';
}

}  // namespace

bool is_no_number(std::string_view text) {
  constexpr std::string_view kNone[] = {"",    "n/a",  "N/A", "(!) n/a",  "nan",       "-nan",    "NaN",
                                        "inf", "-inf", "Inf", "Infinity", "-Infinity", "no data", "None"};
  return std::find(std::begin(kNone), std::end(kNone), text) != std::end(kNone);
}

bool NumberFormat::is_ambiguous(std::string_view text) {
  return is_ambiguous_digits(parts_of(text).digits);
}

void NumberFormat::see(std::string_view text, Kind kind) {
  const std::string digits = parts_of(text).digits;
  const std::size_t last = digits.find_last_of(".,");
  if (last == digits.npos) return;
  const char mark = digits[last];
  const std::size_t first = digits.find_first_of(".,");
  bool decimal = true;  // the last mark stands before decimals
  if (first != last)
    decimal = digits[first] != mark;
  else if (is_ambiguous_digits(digits)) {
    if (kind == Kind::any) return;
    decimal = kind == Kind::percent;
  }
  ++((mark == '.') == decimal ? points_ : commas_);
}

std::optional<double> NumberFormat::read(std::string_view text) const {
  const Parts parts = parts_of(text);
  if (parts.digits.empty()) return std::nullopt;
  const char decimal = commas_ > points_ ? ',' : '.', group = decimal == '.' ? ',' : '.';
  const std::size_t point = std::min(parts.digits.find(decimal), parts.digits.size());
  std::string plain = parts.negative ? "-" : "";
  bool grouped = false;
  for (std::size_t i = 0; i < parts.digits.size(); ++i) {
    const char c = parts.digits[i];
    if (c == group) {
      if (i > point || (point - i) % 4 != 0 || (!grouped && i > 3)) return std::nullopt;
      grouped = true;
    } else if (c == decimal) {
      if (i != point) return std::nullopt;
      plain += '.';
    } else {
      // A group that misses its mark: "1,2345".
      if (grouped && i < point && (point - i) % 4 == 0) return std::nullopt;
      plain += c;
    }
  }
  if (!parts.exponent.empty()) plain += 'e' + parts.exponent;
  double value = 0;
  const char* const end = plain.data() + plain.size();
  const auto [rest, error] = std::from_chars(plain.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace convtune
