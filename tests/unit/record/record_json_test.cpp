// Records as JSON: every record comes back as it went, and nothing foreign gets in or crashes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "convtune/error.h"
#include "records_fixture.h"

namespace convtune::record_json_test {
namespace {

using Json = nlohmann::ordered_json;

Json sample_json() {
  return Json::parse(to_json_line(sample_record()));
}

// The message of the refusal; a failure of the test if there is none, or one of another kind.
std::string refusal(const std::string& text) {
  try {
    parse_record(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was accepted: " << text.substr(0, 500);
  return {};
}

void expect_refused_field(const std::string& text, const std::string& field) {
  const std::string message = refusal(text);
  EXPECT_NE(message.find("'" + field + "'"), std::string::npos) << message;
}

TEST(RecordJson, SampleComesBack) {
  const std::string line = to_json_line(sample_record());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.rfind(R"({"schema":1,"problem":)", 0), 0u) << line;
  EXPECT_EQ(parse_record(line), sample_record());
  EXPECT_EQ(parse_record(line).problem.name, "alexnet_conv1");
  EXPECT_EQ(parse_record("  " + line + " \r\n"), sample_record());
}

TEST(RecordJson, EveryRecordComesBack) {
  const auto number = [](double low, double high) {
    return rc::gen::map(rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 53), [=](std::int64_t bits) {
      return low + (high - low) * (static_cast<double>(bits) / 9007199254740992.0);
    });
  };
  const auto text = rc::gen::container<std::string>(
      rc::gen::elementOf(std::string("abcXYZ019 .,:;%()[]{}\"'\\/<>&=+-*_?!#$@^`|~")));
  EXPECT_TRUE(rc::check([&] {
    Record record = sample_record();
    record.problem.n = *rc::gen::inRange<std::int64_t>(0, 4096);
    record.problem.c = record.problem.groups = *rc::gen::inRange<std::int64_t>(1, 512);
    record.problem.k = record.problem.c * *rc::gen::inRange<std::int64_t>(1, 4);
    record.problem.pad_bottom = *rc::gen::inRange<std::int64_t>(0, 9);
    record.problem.dilation_w = *rc::gen::inRange<std::int64_t>(1, 4);
    record.problem.layout = *rc::gen::element(Layout::nchw, Layout::nhwc);
    record.problem.bias = *rc::gen::arbitrary<bool>();
    record.config.values.clear();
    const int fields = *rc::gen::inRange(0, 8);
    for (int i = 0; i < fields; ++i)
      record.config.values.emplace_back(fmt::format("field_{}", i), *rc::gen::arbitrary<std::int64_t>());
    record.device = "x" + *text;
    record.decision = *text + " → µs";
    record.runner_up = *text;
    record.vendor = *text;
    record.software = *text;
    record.time_us = *number(1e-6, 1e9);
    record.mad_us = *number(0, 1e-3);
    record.vendor_us = *number(0, 1e12);
    record.max_error = *number(0, 1e-6);
    record.n = *rc::gen::inRange<std::int64_t>(1, 1'000'000);
    const std::string line = to_json_line(record);
    RC_ASSERT(parse_record(line) == record);
    RC_ASSERT(to_json_line(parse_record(line)) == line);
  }));
}

// An earlier version wrote the first for 9 x 14 images with padding on all sides; it now has none at the
// left.
TEST(RecordJson, LinesOfAnEarlierVersionAreRefused) {
  Json json = sample_json();
  json["problem"] = "mb1ic4ih9iw14oc5kh3kw5ph1 precision=fp32";
  EXPECT_NE(refusal(json.dump()).find("'mb1ic4ih9iw14oc5kh3kw5ph1pw0 precision=fp32': tune it again"),
            std::string::npos);
  json["problem"] = "mb1ic4ih9iw14oc5kh3kw5ph1pw1 precision=fp32";
  EXPECT_EQ(parse_record(json.dump()).problem.pad_left, 1);
}

TEST(RecordJson, EveryFieldIsNeeded) {
  const Json good = sample_json();
  for (const auto& [field, value] : good.items()) {
    Json json = sample_json();
    json.erase(field);
    const std::string message = refusal(json.dump());
    EXPECT_EQ(message, fmt::format("record: field '{}' is missing", field));
  }
}

TEST(RecordJson, OlderRecordsHaveNoHashOfTheirRunnerUp) {
  EXPECT_FALSE(sample_json().contains("runner_up_hash"));
  Record record = sample_record();
  record.runner_up_hash = "89abcdef";
  EXPECT_EQ(parse_record(to_json_line(record)), record);
  for (const Json& wrong : {Json(""), Json("two words"), Json(1), Json(nullptr)}) {
    Json json = sample_json();
    json["runner_up_hash"] = wrong;
    expect_refused_field(json.dump(), "runner_up_hash");
  }
}

// A version that does not know them takes no such record for proven: it refuses what it does not know.
TEST(RecordJson, WhatIsWithoutProofSaysSoAndNothingElseDoes) {
  EXPECT_TRUE(sample_record().proven());
  EXPECT_FALSE(sample_json().contains("undecided"));
  EXPECT_FALSE(sample_json().contains("left_out"));
  EXPECT_FALSE(sample_json().contains("searched"));
  EXPECT_FALSE(sample_json().contains("compiler"));
  Record record = sample_record();
  record.undecided = 2, record.searched = "direct direct-6, winograd winograd-4";
  EXPECT_EQ(parse_record(to_json_line(record)), record);
  EXPECT_FALSE(record.proven());
  record.undecided = 0, record.left_out = "onednn blocked=1, onednn blocked=0";
  EXPECT_EQ(parse_record(to_json_line(record)), record);
  EXPECT_FALSE(record.proven());
  for (const Json& wrong : {Json(0), Json(-1), Json(1e300), Json("1"), Json(nullptr), Json(true)}) {
    Json json = sample_json();
    json["undecided"] = wrong;
    expect_refused_field(json.dump(), "undecided");
  }
  record.left_out.clear(), record.compiler = "NVRTC 13.0 build 65be0db3";
  EXPECT_EQ(parse_record(to_json_line(record)), record);
  Json json = sample_json();
  json["left_out"] = 1;
  expect_refused_field(json.dump(), "left_out");
}

TEST(RecordJson, EveryFieldHasOneType) {
  const Json wrong[] = {nullptr, true, Json::array(), Json::object(), Json::array({1, 2}), Json{{"a", 1}}};
  const Json good = sample_json();
  for (const auto& [field, value] : good.items()) {
    Json json = sample_json();
    for (const Json& other : wrong) {
      json[field] = other;
      expect_refused_field(json.dump(), field);
    }
    json[field] = value.is_string() ? Json(17) : Json("17");
    expect_refused_field(json.dump(), field);
  }
  Json json = sample_json();
  json["n"] = 40.0;
  expect_refused_field(json.dump(), "n");
}

TEST(RecordJson, EveryNumberHasARange) {
  const auto with = [](const char* field, const char* number) {
    Json json = sample_json();
    json[field] = "@";
    std::string text = json.dump();
    return text.replace(text.find("\"@\""), 3, number);
  };
  for (const char* field :
       {"time_us", "mad_us", "roofline_fraction", "max_error", "runner_up_us", "vendor_us"}) {
    for (const char* number :
         {"-1", "-1e-300", "1e13", "1e308", "18446744073709551615", "-9223372036854775808"})
      expect_refused_field(with(field, number), field);
    // JSON has no such numbers; the place is named.
    for (const char* number :
         {"NaN", "nan", "Infinity", "-Infinity", "1e999", "-1e999", "0x10", "1.", "+1", "00"})
      expect_refused_field(with(field, number), field);
  }
  for (const char* number : {"0", "-1", "1000000001", "18446744073709551615", "1e3", "99999999999999999999"})
    expect_refused_field(with("n", number), "n");
  for (const char* number : {"0", "2", "-1", "1.0", "1e0"})
    expect_refused_field(with("schema", number), "schema");
  expect_refused_field(with("time_us", "0"), "time_us");
  EXPECT_EQ(parse_record(with("time_us", "5")).time_us, 5);
  EXPECT_EQ(parse_record(with("mad_us", "0")).mad_us, 0);
}

TEST(RecordJson, EveryTextIsChecked) {
  const auto refused = [](const char* field, const std::string& text) {
    Json json = sample_json();
    json[field] = text;
    expect_refused_field(json.dump(), field);
  };
  for (const char* field : {"problem", "device", "algorithm", "config", "runner_up", "vendor", "decision",
                            "kernel_hash", "software", "date"}) {
    refused(field, std::string(4097, 'a'));
    refused(field, "line\nbreak");
    refused(field, "\x1b[2J");
    refused(field, std::string("zero\0byte", 9));
    refused(field,
            "\xc2\x9b"
            "2J");  // the one-character form of ESC [
    refused(field, "\x7f");
  }
  for (const char* text : {"", "mb", "mb1ic3", "rm -rf", "mb1ic3ih4oc4kh9", "mb1ic3ih4oc4kh3precision=tf64"})
    refused("problem", text);
  for (const char* text : {"a", "a=", "=1", "a=1 a=2", "a=1.5", "a=99999999999999999999"})
    refused("config", text);
  for (const char* text : {"", "two words", "../../etc", "a/b", "µ"}) refused("algorithm", text);
  refused("kernel_hash", "");
  refused("device", "");
  for (const char* text :
       {"", "2026-01-31", "2026-13-31T23:59:59Z", "2026-01-32T23:59:59Z", "2026-01-31T24:59:59Z",
        "2026-01-31 23:59:59Z", "2026-01-31T23:59:59", "2026-01-31T23:59:59Zx", "2026-0a-31T23:59:59Z"})
    refused("date", text);
}

TEST(RecordJson, NoFieldTooManyAndNoneTwice) {
  Json json = sample_json();
  json["extra"] = 1;
  EXPECT_EQ(refusal(json.dump()), "record: field 'extra' is not known");
  std::string twice = to_json_line(sample_record());
  twice.insert(1, R"("n":1,)");
  EXPECT_EQ(refusal(twice), "record: field 'n' stands there twice");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += fmt::format("\"f{}\":1,", i);
  refusal(many + "\"g\":1}");
  refusal("{\"\\u001b[2J\":1}");
}

TEST(RecordJson, WhatIsNotAnObject) {
  for (const char* text : {"",
                           " ",
                           "1",
                           "null",
                           "true",
                           "\"text\"",
                           "[]",
                           "[1]",
                           "[[]]",
                           "{",
                           "}",
                           "{}",
                           "{]",
                           "nul",
                           "{\"schema\"}",
                           "{\"schema\":}",
                           "{\"schema\":1,}",
                           "\xff\xfe",
                           "{'schema':1}",
                           "{\"schema\":1 // comment\n}"})
    refusal(text);
  const std::string line = to_json_line(sample_record());
  refusal(line + line);
  refusal(line + "x");
  refusal(line + std::string("\0x", 2));
  refusal("[" + line + "]");
}

TEST(RecordJson, DeepAndLargeTextsAreRefusedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::size_t depth : {2u, 32u, 33u, 1000u, 100'000u, 10'000'000u}) {
    refusal(std::string(depth, '['));
    refusal(std::string(depth, '[') + std::string(depth, ']'));
    std::string nested;
    for (std::size_t i = 0; i < std::min<std::size_t>(depth, 40'000); ++i) nested += "{\"a\":";
    refusal(nested);
    expect_refused_field("{\"config\":" + std::string(std::min<std::size_t>(depth, 200'000), '['), "config");
  }
  const std::string message = refusal("{\"device\":\"" + std::string(100'000'000, 'x') + "\"}");
  EXPECT_NE(message.find("100000013 bytes"), std::string::npos) << message;
  // Less than a second where nothing else runs; hours, were anything done once a brace.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(RecordJson, WritingRefusesWhatCouldNotBeRead) {
  const auto refused = [](const char* field, auto change) {
    Record record = sample_record();
    change(record);
    try {
      to_json_line(record);
      ADD_FAILURE() << field;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  refused("time_us", [](Record& r) { r.time_us = kNan; });
  refused("mad_us", [](Record& r) { r.mad_us = kInf; });
  refused("vendor_us", [](Record& r) { r.vendor_us = -kInf; });
  refused("max_error", [](Record& r) { r.max_error = kNan; });
  refused("roofline_fraction", [](Record& r) { r.roofline_fraction = kInf; });
  refused("time_us", [](Record& r) { r.time_us = 0; });
  refused("n", [](Record& r) { r.n = 0; });
  refused("decision", [](Record& r) { r.decision = "\xff"; });
  refused("decision", [](Record& r) { r.decision = "two\nlines"; });
  refused("date", [](Record& r) { r.date = "today"; });
}

// Flips, cuts, insertions, repeats: 20,000 broken records, each read or refused, never anything else.
TEST(RecordJson, MutationsAreReadOrRefused) {
  const std::string good = to_json_line(sample_record());
  std::mt19937_64 random(2026);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::string tokens[] = {
      "{",    "}",     "[",   "]",       ",",       ":",      "\"",     "\\",
      "null", "1e999", "-",   "\\u0000", "\\ud800", "\xc3",   "\"n\":", "9999999999999999999",
      "true", "=",     "mb0", "ih0",     "=-",      "n\"x\"", "\n",     "g3"};
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (std::size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
      const std::size_t at = below(text.size());
      switch (below(6)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.insert(at, tokens[below(std::size(tokens))]);
          break;
        case 3:
          text.resize(at);
          break;
        case 4:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
        default:
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
      }
    }
    try {
      const Record record = parse_record(text);
      ASSERT_EQ(parse_record(to_json_line(record)), record) << text;
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::invalid_argument) << text;
      ++refused;
    }
  }
  EXPECT_GT(read, 500);  // a changed letter of a sentence is still a record
  EXPECT_GT(refused, 10'000);
  for (std::size_t length = 0; length < good.size(); ++length) refusal(good.substr(0, length));
}

}  // namespace
}  // namespace convtune::record_json_test
