// A Record as one line of JSON and back. What is written is read back before it leaves, so the one
// list of rules in parse_record holds for records of our own as for foreign ones.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/flat_json.h"
#include "base/quoted.h"
#include "convtune/database.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr std::int64_t kRecordSchema = 1;
constexpr double kMaxTimeUs = 1e12;  // eleven days
constexpr double kMaxRatio = 1e6;    // for errors and roofline fractions: nonsense, but a number
constexpr std::int64_t kMaxContests = 1'000'000;
constexpr std::int64_t kMaxSamples = 1'000'000'000;

// Two digits at `at` of an ISO 8601 text, within [low, high].
bool two_digits(std::string_view text, std::size_t at, int low, int high) {
  const int tens = text[at] - '0', ones = text[at + 1] - '0';
  if (tens < 0 || tens > 9 || ones < 0 || ones > 9) return false;
  return tens * 10 + ones >= low && tens * 10 + ones <= high;
}

bool is_utc_date(std::string_view text) {
  constexpr std::string_view kShape = "0000-00-00T00:00:00Z";
  if (text.size() != kShape.size()) return false;
  for (std::size_t i = 0; i < kShape.size(); ++i)
    if (kShape[i] != '0' && text[i] != kShape[i]) return false;
  return two_digits(text, 0, 0, 99) && two_digits(text, 2, 0, 99) && two_digits(text, 5, 1, 12) &&
         two_digits(text, 8, 1, 31) && two_digits(text, 11, 0, 23) && two_digits(text, 14, 0, 59) &&
         two_digits(text, 17, 0, 60);
}

// parse_problem and parse_config say what is wrong inside; this adds in which field.
template <class Parse>
auto parse_field(FlatJson& json, std::string_view field, Parse&& parse) {
  const std::string text = json.take_text(field);
  try {
    return parse(text);
  } catch (const Error& error) {
    json.fail(field, fmt::format("is wrong: {}", error.what()));
  }
}

}  // namespace

Record parse_record(std::string_view text) {
  FlatJson json(text, "record");
  json.take_integer("schema", kRecordSchema, kRecordSchema);
  Record record;
  record.problem = parse_field(json, "problem", [](const std::string& line) {
    ConvProblem problem = parse_problem(line);
    // An earlier version's line may have meant another problem.
    if (const std::string today = to_string(problem); today != line)
      throw Error(ErrorKind::invalid_argument, fmt::format("{} would be written {}: tune it again",
                                                           quoted(line, 200), quoted(today, 200)));
    return problem;
  });
  record.device = json.take_text("device");
  if (record.device.empty()) json.fail("device", "is empty");
  record.algorithm = json.take_word("algorithm");
  record.config = parse_field(json, "config", [](const std::string& line) { return parse_config(line); });
  record.time_us = json.take_number("time_us", 0, kMaxTimeUs);
  if (record.time_us == 0) json.fail("time_us", "is 0; a measured time is more");
  record.mad_us = json.take_number("mad_us", 0, kMaxTimeUs);
  record.n = json.take_integer("n", 1, kMaxSamples);
  record.roofline_fraction = json.take_number("roofline_fraction", 0, kMaxRatio);
  record.roofline_bound = json.take_word("roofline_bound");
  record.max_error = json.take_number("max_error", 0, kMaxRatio);
  record.runner_up = json.take_text("runner_up");
  record.runner_up_us = json.take_number("runner_up_us", 0, kMaxTimeUs);
  // Records of before this field have none: their winners are believed, and their runners-up are not.
  if (json.has("runner_up_hash")) record.runner_up_hash = json.take_word("runner_up_hash");
  record.vendor = json.take_text("vendor");
  record.vendor_us = json.take_number("vendor_us", 0, kMaxTimeUs);
  record.decision = json.take_text("decision");
  record.kernel_hash = json.take_word("kernel_hash");
  record.software = json.take_text("software");
  record.date = json.take_text("date");
  if (!is_utc_date(record.date)) json.fail("date", "must look like 2026-01-31T23:59:59Z");
  // Only where they are needed: a version that does not know them refuses what it would take for proven.
  if (json.has("undecided")) record.undecided = json.take_integer("undecided", 1, kMaxContests);
  if (json.has("left_out")) record.left_out = json.take_text("left_out");
  if (json.has("compiler")) record.compiler = json.take_text("compiler");
  if (json.has("searched")) record.searched = json.take_text("searched");
  json.finish();
  return record;
}

std::string to_json_line(const Record& record) {
  // Not a number and infinity become null here, which parse_record refuses by the field's name.
  nlohmann::ordered_json json = {{"schema", kRecordSchema},
                                 {"problem", to_string(record.problem)},
                                 {"device", record.device},
                                 {"algorithm", record.algorithm},
                                 {"config", to_string(record.config)},
                                 {"time_us", record.time_us},
                                 {"mad_us", record.mad_us},
                                 {"n", record.n},
                                 {"roofline_fraction", record.roofline_fraction},
                                 {"roofline_bound", record.roofline_bound},
                                 {"max_error", record.max_error},
                                 {"runner_up", record.runner_up},
                                 {"runner_up_us", record.runner_up_us},
                                 {"vendor", record.vendor},
                                 {"vendor_us", record.vendor_us},
                                 {"decision", record.decision},
                                 {"kernel_hash", record.kernel_hash},
                                 {"software", record.software},
                                 {"date", record.date}};
  if (!record.runner_up_hash.empty()) json["runner_up_hash"] = record.runner_up_hash;
  if (record.undecided != 0) json["undecided"] = record.undecided;
  if (!record.left_out.empty()) json["left_out"] = record.left_out;
  if (!record.compiler.empty()) json["compiler"] = record.compiler;
  if (!record.searched.empty()) json["searched"] = record.searched;
  for (const auto& [field, value] : json.items()) {
    try {
      (void)value.dump();
    } catch (const nlohmann::json::exception&) {
      throw Error(ErrorKind::invalid_argument, fmt::format("record: field '{}' is not UTF-8", field));
    }
  }
  std::string line = json.dump();
  parse_record(line);
  return line;
}

}  // namespace convtune
