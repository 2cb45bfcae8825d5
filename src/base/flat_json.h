// Reads one flat JSON object (no arrays, no objects inside) from foreign text, strictly: each field
// once, of the right type, within its range, and no field too many. Records and trials are such
// objects. Nothing is ever nested, so depth is capped at 1 while parsing, and size before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace convtune {

// ASCII controls, DEL, and the C1 controls that some terminals obey (U+0080 to U+009F in UTF-8).
bool has_control_character(std::string_view text);

class FlatJson {
 public:
  static constexpr std::size_t kMaxBytes = 256 * 1024;
  static constexpr std::size_t kMaxStringBytes = 4096;
  static constexpr std::size_t kMaxFields = 64;

  // `what` begins every message: "record". Every member throws Error{invalid_argument} that names
  // the field, or the byte where the text stops to be JSON; nothing else is ever thrown.
  FlatJson(std::string_view json, std::string what);

  bool has(std::string_view field) const;
  // Each takes a field out.
  // Text is UTF-8 without control characters, so that printing it cannot steer a terminal.
  std::string take_text(std::string_view field);
  std::string take_word(std::string_view field);  // not empty: letters, digits, '_', '-', '.'
  double take_number(std::string_view field, double low, double high);
  std::int64_t take_integer(std::string_view field, std::int64_t low, std::int64_t high);
  // Throws if a field is left.
  void finish() const;

  [[noreturn]] void fail(std::string_view field, const std::string& why) const;

  // Lists the types of a field; monostate stands for null and booleans, which no field wants.
  using Value = std::variant<std::monostate, std::string, std::int64_t, double>;

 private:
  Value take(std::string_view field);

  std::string what_;
  std::vector<std::pair<std::string, Value>> fields_;
};

}  // namespace convtune
