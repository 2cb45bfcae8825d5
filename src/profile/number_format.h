// Numbers as ncu prints them in the user's language: "1,234.5" or "1.234,5". Which of the two a file is in is
// what most of its numbers say.
#pragma once

#include <optional>
#include <string_view>

namespace convtune {

// "", "n/a", "(!) n/a", "nan", "inf", "no data": what stands where there is no number.
bool is_no_number(std::string_view text);

class NumberFormat {
 public:
  // Shares are below a thousand and counts have no decimals: either tells what the mark of "48.400" is.
  enum class Kind { any, whole, percent };

  void see(std::string_view text, Kind kind);
  bool decided() const { return points_ != commas_; }
  // Nothing for what is no number of this format.
  std::optional<double> read(std::string_view text) const;
  // True for "1,234": a thousand and more in one format and little more than one in the other.
  static bool is_ambiguous(std::string_view text);

 private:
  int points_ = 0, commas_ = 0;  // numbers whose decimals stand behind a point, a comma
};

}  // namespace convtune
