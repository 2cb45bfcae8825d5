// nlohmann's event parser fills the fields; it neither recurses nor throws, and the first nested
// value, repeated field or field too many stops it.
#include "base/flat_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "convtune/error.h"

namespace convtune {
namespace {

// The events of nlohmann::json::sax_parse. `failure` says why it stopped.
struct Events {
  using Fields = std::vector<std::pair<std::string, FlatJson::Value>>;
  Fields fields;
  std::string field, failure;
  bool inside = false;

  bool stop(std::string why) {
    if (failure.empty()) failure = std::move(why);
    return false;
  }
  bool add(FlatJson::Value value) {
    if (!inside) return stop("is not a JSON object");
    fields.emplace_back(field, std::move(value));
    return true;
  }
  bool nested(const char* kind) {
    if (field.empty() && fields.empty() && !inside) return stop("is not a JSON object");
    return stop(fmt::format("field '{}' holds {}; text or a number is expected", field, kind));
  }

  bool null() { return add({}); }
  bool boolean(bool) { return add({}); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return add(static_cast<std::int64_t>(value));
    return add(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return add({}); }
  bool start_object(std::size_t) {
    if (inside) return nested("an object");
    return inside = true;
  }
  bool end_object() { return true; }
  bool start_array(std::size_t) { return nested("an array"); }
  bool end_array() { return true; }
  bool key(std::string& name) {
    // A name is foreign text too, and is quoted in messages: fields are lower-case words.
    const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (name.size() > 40 || !std::all_of(name.begin(), name.end(), fits))
      return stop("has a field whose name is not a lower-case word");
    for (const auto& [known, value] : fields)
      if (known == name) return stop(fmt::format("field '{}' stands there twice", name));
    if (fields.size() == FlatJson::kMaxFields)
      return stop(fmt::format("has more than {} fields", FlatJson::kMaxFields));
    field = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    return stop(field.empty()
                    ? fmt::format("is not JSON at byte {}", position)
                    : fmt::format("is not JSON at byte {}, in or after field '{}'", position, field));
  }
};

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

}  // namespace

bool has_control_character(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

FlatJson::FlatJson(std::string_view json, std::string what) : what_(std::move(what)) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::invalid_argument, fmt::format("{}: {}", what_, why));
  };
  if (json.size() > kMaxBytes)
    refuse(fmt::format("has {} bytes; at most {} are read", json.size(), kMaxBytes));
  // nlohmann takes a zero byte for the end of the text, and would not look at what follows.
  if (const auto zero = json.find('\0'); zero != std::string_view::npos)
    refuse(fmt::format("is not JSON at byte {}", zero + 1));
  Events events;
  events.fields.reserve(kMaxFields);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events) || !events.failure.empty())
    refuse(events.failure.empty() ? "is not JSON" : events.failure);
  fields_ = std::move(events.fields);
}

void FlatJson::fail(std::string_view field, const std::string& why) const {
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: field '{}' {}", what_, field, why));
}

bool FlatJson::has(std::string_view field) const {
  return std::any_of(fields_.begin(), fields_.end(), [&](const auto& f) { return f.first == field; });
}

FlatJson::Value FlatJson::take(std::string_view field) {
  const auto found =
      std::find_if(fields_.begin(), fields_.end(), [&](const auto& f) { return f.first == field; });
  if (found == fields_.end()) fail(field, "is missing");
  Value value = std::move(found->second);
  std::swap(*found, fields_.back());
  fields_.pop_back();
  return value;
}

std::string FlatJson::take_text(std::string_view field) {
  Value value = take(field);
  auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) fail(field, "must be text");
  if (text->size() > kMaxStringBytes)
    fail(field, fmt::format("has {} bytes; at most {} are allowed", text->size(), kMaxStringBytes));
  if (has_control_character(*text)) fail(field, "holds a control character");
  return std::move(*text);
}

std::string FlatJson::take_word(std::string_view field) {
  std::string word = take_text(field);
  if (word.empty() || !std::all_of(word.begin(), word.end(), is_word_character))
    fail(field, "must be one word of letters, digits, '_', '-' and '.'");
  return word;
}

double FlatJson::take_number(std::string_view field, double low, double high) {
  const Value value = take(field);
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const auto* integer = std::get_if<std::int64_t>(&value)) number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value)) number = *real;
  if (std::isnan(number)) fail(field, fmt::format("must be a number from {:g} to {:g}", low, high));
  if (number < low || number > high)
    fail(field, fmt::format("is {:g}, out of its range {:g} to {:g}", number, low, high));
  return number;
}

std::int64_t FlatJson::take_integer(std::string_view field, std::int64_t low, std::int64_t high) {
  const Value value = take(field);
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (integer == nullptr) fail(field, fmt::format("must be a whole number from {} to {}", low, high));
  if (*integer < low || *integer > high)
    fail(field, fmt::format("is {}, out of its range {} to {}", *integer, low, high));
  return *integer;
}

void FlatJson::finish() const {
  if (!fields_.empty()) fail(fields_.front().first, "is not known");
}

}  // namespace convtune
