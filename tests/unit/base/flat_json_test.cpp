// FlatJson beside nlohmann's parser alone: of flat objects both take the same and find the same in it. Its
// messages are in tests/unit/record/record_json_test.cpp.
#include "base/flat_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/random_bits.h"
#include "convtune/error.h"

namespace convtune::flat_json_test {
namespace {

using nlohmann::json;

// Holds the fields that nlohmann's parser finds, up to the first that a flat object may not hold.
struct Events : nlohmann::json_sax<json> {
  std::vector<std::pair<std::string, json>> fields;
  std::string name;
  bool inside = false;

  bool add(json value) {
    fields.emplace_back(name, std::move(value));
    return inside;
  }
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override {
    return add(value > std::numeric_limits<std::int64_t>::max() ? json(static_cast<double>(value))
                                                                : json(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(value); }
  bool binary(json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return !std::exchange(inside, true); }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return false; }
  bool end_array() override { return false; }
  bool key(std::string& key) override {
    name = key;
    const auto same = [&](const auto& field) { return field.first == key; };
    return key.size() <= 40 && key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == key.npos &&
           std::none_of(fields.begin(), fields.end(), same);
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
};

std::optional<FlatJson> read(const std::string& text) {
  try {
    return FlatJson(text, "text");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return std::nullopt;
  }
}

// Tells whether both take it.
bool compare(const std::string& text) {
  Events events;
  const bool takes = text.find('\0') == text.npos && json::sax_parse(text, &events);
  std::optional<FlatJson> flat = read(text);
  EXPECT_EQ(flat.has_value(), takes) << text;
  if (!takes || !flat) return false;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Integers = std::numeric_limits<std::int64_t>;
  for (const auto& [name, value] : events.fields) {
    EXPECT_TRUE(flat->has(name)) << text;
    FlatJson copy = *flat;
    if (value.is_string() && !has_control_character(value.get<std::string>()))
      EXPECT_EQ(flat->take_text(name), value.get<std::string>()) << text;
    else if (value.is_number_integer())
      EXPECT_EQ(flat->take_integer(name, Integers::min(), Integers::max()), value.get<std::int64_t>())
          << text;
    else if (value.is_number())
      EXPECT_EQ(flat->take_number(name, -kInfinity, kInfinity), value.get<double>()) << text;
    else
      EXPECT_THROW(copy.take_number(name, -kInfinity, kInfinity), Error) << text;
  }
  return true;
}

TEST(FlatJson, TakesWhatAJsonParserTakes) {
  const std::string good =
      R"({ "a":1, "b_2":-0.5e+3 ,"text":"µs \"x\" \\ \/ \u00b5 \ud83d\ude00 \n", "c":9223372036854775807,)"
      "\"d\":18446744073709551616,\t\"e\":null,\"f\":true , \"g\":\"\xf0\x9f\x98\x80 "
      "\xed\x9f\xbf\",\r\n\"h\":-0}";
  ASSERT_TRUE(compare(good));
  for (std::size_t length = 0; length < good.size(); ++length) EXPECT_FALSE(compare(good.substr(0, length)));
  const char* const tokens[] = {"\"",
                                "\\",
                                "\\u",
                                "\\ud800",
                                "\\udc00",
                                "\\u0000",
                                "{",
                                "}",
                                "[",
                                "]",
                                ":",
                                ",",
                                "null",
                                "false",
                                "-",
                                "0",
                                "1.",
                                ".5",
                                "e",
                                "E-2",
                                "1e308",
                                "1e309",
                                "+",
                                "00",
                                "\xc0\x80",
                                "\xe0\x9f\xbf",
                                "\xed\xa0\x80",
                                "\xf4\x90\x80\x80",
                                "\xf4\x8f\xbf\xbf",
                                "\xc2",
                                "\x7f",
                                "\x1f",
                                "\xef\xbb\xbf",
                                "\"a\":2,",
                                " ",
                                "\n"};
  std::uint64_t draws = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random_bits(1, draws++) % n); };
  int taken = 0, refused = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text = good;
    for (std::size_t changes = 1 + below(2); changes > 0 && !text.empty(); --changes) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(4));
          break;
        case 2:
          text.insert(at, tokens[below(std::size(tokens))]);
          break;
        default:
          text.insert(at, text.substr(below(text.size()), below(12)));
          break;
      }
    }
    ++(compare(text) ? taken : refused);
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 5'000);
  EXPECT_GT(refused, 5'000);
}

}  // namespace
}  // namespace convtune::flat_json_test
