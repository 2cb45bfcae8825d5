// The text form of Config.
#include "convtune/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;

bool is_name(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return (c < 0x80 && std::isalnum(c)) || c == '_'; });
}

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("config {}: {}", quoted(text), why));
}

}  // namespace

std::int64_t Config::at(std::string_view name) const {
  for (const auto& [known, value] : values)
    if (known == name) return value;
  refuse(to_string(*this), fmt::format("it has no field {}", quoted(name)));
}

std::string to_string(const Config& config) {
  std::string text;
  for (const auto& [name, value] : config.values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

Config parse_config(std::string_view text) {
  if (text.size() > kMaxTextBytes)
    refuse(text, fmt::format("{} bytes are more than the limit of {}", text.size(), kMaxTextBytes));
  constexpr std::string_view kBlanks = " \t";
  Config config;
  std::size_t begin = 0;
  while ((begin = text.find_first_not_of(kBlanks, begin)) != text.npos) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const char* const number = word.data() + std::min(equals + 1, word.size());
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(number, word.data() + word.size(), value);
    if (!is_name(name) || error != std::errc() || stop != word.data() + word.size())
      refuse(text, fmt::format("column {}: {} is not name=integer", begin + 1, quoted(word)));
    for (const auto& [known, ignored] : config.values)
      if (known == name) refuse(text, fmt::format("column {}: {} is given twice", begin + 1, quoted(name)));
    config.values.emplace_back(name, value);
    begin = end;
  }
  return config;
}

}  // namespace convtune
