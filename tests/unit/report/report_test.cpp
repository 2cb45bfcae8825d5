// The reports of tune and bench: the JSON schema that scripts read, CSV quoting, the footer's sums.
#include "convtune/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "convtune/error.h"
#include "read_csv.h"
#include "report_rows.h"

namespace convtune::report_test {
namespace {

using Json = nlohmann::json;

ReportEnvironment environment() {
  return {{}, 2, {{"convtune", "1.2.3"}}, "2024-05-06T07:08:09Z"};
}

std::string json_of(std::vector<ReportRow> rows, bool interrupted = false) {
  return report_json({environment(), std::move(rows), interrupted});
}

std::set<std::string> keys(const Json& json) {
  std::set<std::string> names;
  for (const auto& item : json.items()) names.insert(item.key());
  return names;
}

void expect_values(const Json& json, const char* expected) {
  const Json values = Json::parse(expected);
  for (const auto& [key, value] : values.items()) EXPECT_EQ(json.at(key), value) << key;
}

TEST(ReportJson, HasExactlyTheSchemasKeys) {
  const Json json = Json::parse(json_of({row_of(20, 40)}));
  EXPECT_EQ(keys(json), (std::set<std::string>{"schema", "environment", "rows", "geomean_speedup", "wins",
                                               "ties", "losses"}));
  EXPECT_EQ(json["schema"], 1);
  expect_values(json["environment"],
                R"({"threads": 2, "versions": {"convtune": "1.2.3"}, "date": "2024-05-06T07:08:09Z"})");
  const Json& row = json["rows"].at(0);
  EXPECT_EQ(keys(row),
            (std::set<std::string>{"case", "problem", "device", "roofline", "providers", "incumbent",
                                   "best_peer", "speedup", "verdict", "decision", "machine", "check"}));
  expect_values(row, R"({"case": "a case", "device": "cpu-test", "incumbent": "oneDNN 3.2.0",
      "best_peer": "onednn blocked=0", "speedup": 2.0,
      "machine": {"load": 1.5, "processors": 2, "busy": false,
                  "finding": "load 1.5 on 2 processors; no sample was interrupted"},
      "check": {"samples": 2048, "elements": 4096, "oracle_seconds": 0.5, "ways_seconds": 0.25}})");
  EXPECT_EQ(keys(row["roofline"]),
            (std::set<std::string>{"floor_us", "bound", "flops_per_second", "bytes_per_second"}));
  EXPECT_EQ(
      row["verdict"].get<std::string>().rfind("convtune is 2.00x faster than the best of the vendor's ways, "
                                              "onednn blocked=0: 20.00 us",
                                              0),
      0u)
      << row["verdict"];
  ASSERT_EQ(row["providers"].size(), 2u);
  const Json& own = row["providers"][0];
  EXPECT_EQ(keys(own), (std::set<std::string>{"name", "algorithm", "config", "time_us", "mad_us", "n",
                                              "roofline_fraction", "max_error"}));
  expect_values(own, R"({"config": "vectors=4", "time_us": 20.0, "n": 20})");
}

TEST(ReportJson, TheProblemReadsBackAsTheSameProblem) {
  const ReportRow row = row_of(20, 40);
  const Json json = Json::parse(json_of({row}));
  EXPECT_EQ(parse_problem(json["rows"][0]["problem"].get<std::string>()), row.comparison.problem);
}

TEST(ReportJson, WithoutAPeerThereIsNoSpeedup) {
  const Json json = Json::parse(json_of({row_of(20, 0)}));
  EXPECT_TRUE(json["rows"][0]["best_peer"].is_null());
  EXPECT_TRUE(json["rows"][0]["speedup"].is_null());
  EXPECT_TRUE(json["geomean_speedup"].is_null());
  EXPECT_EQ(json["wins"].get<int>() + json["ties"].get<int>() + json["losses"].get<int>(), 0);
}

TEST(ReportJson, InterruptedSamplesAreTold) {
  ReportRow row = row_of(20, 400);
  row.comparison.load = {12.04, 2};
  row.comparison.providers[1].interrupted = 19;
  const Json json = Json::parse(json_of({row}))["rows"][0];
  EXPECT_EQ(json["machine"]["busy"], true);
  EXPECT_EQ(json["machine"]["finding"],
            "load 12.0 on 2 processors; 0 of 20 samples of convtune and 19 of 20 of onednn blocked=0 were "
            "interrupted");
  EXPECT_EQ(json["providers"][1]["interrupted"], 19);
  row.comparison.providers[1].interrupted = 4;
  EXPECT_FALSE(machine_is_busy(row.comparison));
  row.comparison.providers[0].interrupted = 5;
  EXPECT_TRUE(machine_is_busy(row.comparison));
  row.comparison.load = {};  // a GPU's
  EXPECT_EQ(interruptions(row.comparison), "");
}

TEST(ReportJson, TheCheckSaysHowManyElementsItSampled) {
  Comparison comparison = row_of(20, 40).comparison;
  comparison.check = {64, 1000, 2.2, 27.2};
  EXPECT_EQ(check_text(comparison),
            "check: 64 of 1000 elements of each result against the oracle; tensors and oracle took 2 s, "
            "building and "
            "checking every way 27 s");
  comparison.check = {1000, 1000, 0.3, 0.4};
  EXPECT_EQ(check_text(comparison), "check: all 1000 elements of each result against the oracle");
  comparison.check = {};
  EXPECT_EQ(check_text(comparison), "");
}

TEST(ReportJson, FailuresAreTold) {
  ReportRow wrong_peer = row_of(20, 40);
  wrong_peer.comparison.providers[1].failure = "wrong";
  ReportRow failed;
  failed.failure = "out of memory";
  const Json json = Json::parse(json_of({wrong_peer, failed}));
  EXPECT_EQ(json["rows"][0]["providers"][1]["failure"], "wrong");
  EXPECT_FALSE(json["rows"][0]["providers"][0].contains("failure"));
  EXPECT_EQ(json["rows"][1]["failure"], "out of memory");
  EXPECT_TRUE(json["rows"][1]["providers"].empty());
}

TEST(ReportJson, TuningAndInterruptionAppearWhereTheyHappened) {
  ReportRow row = row_of(20, 40);
  row.tuning = TuningSummary{false, false, 20, 12, 3, 4, 0, "records/a.json", {"hot"}, {}};
  const Json json = Json::parse(json_of({row}, true));
  EXPECT_EQ(json["interrupted"], true);
  expect_values(json["rows"][0]["tuning"], R"({"trials": 12, "resumed": 3, "warnings": ["hot"]})");
  EXPECT_EQ(
      keys(json["rows"][0]["tuning"]),
      (std::set<std::string>{"from_record", "interrupted", "proven", "candidates", "record", "trials",
                             "resumed", "pruned", "wrong", "warnings", "last_stage", "contest", "steps"}));
  EXPECT_TRUE(json["rows"][0]["tuning"]["last_stage"].is_null());
}

TEST(ReportJson, TheLastStagesVerdictsAndTimes) {
  ReportRow row = row_of(20, 40);
  row.tuning.emplace().last_stage = last_stage();
  const Json json = Json::parse(json_of({row}))["rows"][0]["tuning"]["last_stage"];
  EXPECT_EQ(keys(json),
            (std::set<std::string>{"original", "kept", "changed", "tried", "verdicts", "contests"}));
  expect_values(json, R"({"original": "direct stages=3", "kept": "direct stages=4", "changed": true})");
  EXPECT_EQ(json["verdicts"].at(1), "R6: takes 5 % less time");
  ASSERT_EQ(json["tried"].size(), 3u);
  EXPECT_EQ(keys(json["tried"][0]), (std::set<std::string>{"config", "reason", "time_us"}));
  expect_values(json["tried"][1], R"({"config": "stages=4", "time_us": 19.0})");
  EXPECT_EQ(json["tried"][2]["failure"], "wrote outside y");
}

TEST(ReportJson, ARowAloneIsTheReportsOnOneLine) {
  TuningReport tuning;
  tuning.comparison = row_of(20, 40, "bad\xff\"name\"\n").comparison;
  tuning.trials = 12, tuning.resumed = 3, tuning.pruned = 4, tuning.wrong = 1;
  tuning.interrupted = true;
  tuning.warnings = {"hot"};
  tuning.last_stage = last_stage();
  const ReportRow row = report_row(tuning);
  const std::string text = to_json(row);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(Json::parse(text), Json::parse(json_of({row}))["rows"][0]);
  const Json json = Json::parse(text)["tuning"];
  expect_values(json, R"({"from_record": false, "interrupted": true, "trials": 12, "resumed": 3, "pruned": 4,
      "wrong": 1, "warnings": ["hot"]})");
  EXPECT_EQ(json["last_stage"]["kept"], "direct stages=4");
  EXPECT_FALSE(json.contains("small_batch"));
  tuning.small_batch = 8, tuning.small_trials = 120;
  const Json small = Json::parse(to_json(report_row(tuning)))["tuning"];
  expect_values(small, R"({"small_batch": 8, "small_trials": 120})");
}

TEST(ReportJson, OddBytesAndOddNumbersStayJson) {
  ReportRow row = row_of(20, 40, "bad\xff\"name\"\n");
  row.comparison.providers[0].max_error = std::numeric_limits<double>::quiet_NaN();
  const Json json = Json::parse(json_of({row}));
  EXPECT_EQ(json["rows"][0]["case"], "bad\uFFFD\"name\"\n");
  EXPECT_TRUE(json["rows"][0]["providers"][0]["max_error"].is_null());
}

HeldContest held() {
  HeldContest contest{"onednn blocked=0", "direct vectors=4", {}};
  contest.result.min_gain = 0.02, contest.result.confidence = 0.99, contest.result.gain = 0.5;
  contest.result.interval = {0.4, std::numeric_limits<double>::infinity()};
  contest.result.accepted = true, contest.result.rounds = 1;
  contest.result.busy = true, contest.result.incumbent_interrupted = 2;
  contest.result.incumbent_us = {40, 41}, contest.result.challenger_us = {20, 21};
  return contest;
}

// One of each kind, with everything that a report can hold.
std::vector<Report> reports() {
  ReportRow row = row_of(20, 40);
  row.comparison.roofline = {10, "compute", 4e11, 5e10};
  row.comparison.providers[1].failure = "wrote outside y";
  row.comparison.providers[0].interrupted = 18;
  row.comparison.resources = Resources{168, 384, 8, 99'328, 264, {}};
  row.comparison.resources->occupancy = {1, 12, 0.1875, Limiter::shared_memory};
  row.tuning = TuningSummary{false, true, 20, 12, 3, 4, 1, "records/a.json", {"hot"}, last_stage()};
  row.tuning->proven = false, row.tuning->not_recorded = "disk full", row.tuning->contest = held();
  row.tuning->last_stage->contests = {held(), held()};
  row.tuning->steps = {{"onednn", {{{"blocked", 0}}}, true, false, 40, ""},
                       {"direct", {{{"vectors", 4}}}, false, true, 20, ""},
                       {"direct", {{{"vectors", 8}}}, false, false, 0, "wrong"}};
  ReportRow failed;
  failed.comparison.problem = row.comparison.problem, failed.failure = "out of memory";
  VerifyReport verified{
      2, 300, 10, 1, {{row.comparison.problem, "direct", {{{"vectors", 4}}}, "y[0] = 5", "again"}}};
  verified.special = 150;
  RefinedKernel kernel;
  kernel.kernel = "conv_kernel", kernel.line = 12, kernel.original = "num_warps=4 num_stages=2";
  kernel.findings = {{"occupancy", "33 %"}}, kernel.notes = {"a note"}, kernel.verdicts = {"R1: stays"};
  kernel.configs = {"num_warps=4 num_stages=2: the original"};
  kernel.measured = {{"num_warps=4", "the original", 100, 1, 20, "the original's", ""},
                     {"num_warps=8", "twice the warps", 0, 0, 0, "", "crashed"}};
  kernel.place = "a GPU", kernel.changed = true, kernel.contests = {held()};
  RefinedKernel open;
  open.kernel = "other_kernel", open.unknown = "keep: which config was profiled is not known";
  ModelReport model;
  model.mode = "default", model.before_us = 1000, model.after_us = 900, model.gain = 0.1, model.low = 0.05;
  model.high = 0.12, model.kept = true, model.notes = {"a note"};
  model.layers = {
      {{"a", "b"}, "mb1ic3ih8oc4kh3", 2, 100, 80, 0.2, 0.1, 0.3, "direct", "v=4", "nchw", true, "ok"}};
  ReportEnvironment from = environment();
  from.device.name = "Test CPU", from.device.fingerprint = "cpu-test", from.command = "convtune tune 'a b'";
  return {{from, std::vector<ReportRow>{row, failed}, true},
          {from, verified},
          {from, Refined{"", {"about the file"}, {kernel, open}, false}},
          {from, model}};
}

TEST(ParseReport, IsTheInverseOfWriting) {
  for (const Report& report : reports()) {
    const std::string json = report_json(report);
    EXPECT_EQ(report_json(parse_report(json)), json);
  }
}

TEST(ParseReport, ReadsWhatOlderVersionsWrote) {
  const Report old = parse_report(R"({"schema": 1, "rows": [{"problem": "mb1ic3ih8oc4kh3ph1", "device": "cpu",
      "roofline": {"floor_us": 5, "bound": "memory"}, "providers": [], "best_peer": null, "speedup": null}]})");
  const auto& rows = std::get<std::vector<ReportRow>>(old.content);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].comparison.roofline.flops_per_second, 0);
  EXPECT_FALSE(rows[0].tuning);
}

TEST(ParseReport, NamesWhatIsWrong) {
  const auto refusal = [](const char* json) -> std::string {
    try {
      parse_report(json);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    return "taken";
  };
  const std::pair<const char*, const char*> wrong[] = {
      {"", "not JSON"},
      {"{\"rows\": [", "not JSON"},
      {R"({"rows": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[)", "nests lists and objects more than 32 deep"},
      {"[]", "the whole is array, and must be an object"},
      {"{}", "none of rows, verify, refine, model and analysis"},
      {R"({"schema": 2, "rows": []})", "schema is 2"},
      {R"({"rows": {}})", "rows is object, and must be a list"},
      {R"({"rows": [{"problem": 5}]})", "rows[0].problem is number, and must be text"},
      {R"({"rows": [{"problem": "mb1"}]})", "rows[0].problem cannot be used"},
      {R"({"verify": {"checks": -1}})", "verify.checks is number, and must be a whole number"},
      {R"({"verify": {"checks": 1e300}})", "verify.checks"},
      {R"({"model": {"layers": [{"names": ["a", 1]}]}})",
       "model.layers[0].names[1] is number, and must be text"},
      {R"({"refine": {"kernels": [{"contests": [{"incumbent_us": [1], "challenger_us": [1]}]}]}})",
       "refine.kernels[0].contests[0] has no two times"},
      {R"({"rows": [], "environment": {"versions": {"a": 1}}})", "environment.versions.'a' is number"}};
  for (const auto& [json, why] : wrong)
    EXPECT_NE(refusal(json).find(why), std::string::npos) << refusal(json);
}

TEST(Summarize, CountsWithTwoPercentOfTolerance) {
  const auto summary = summarize({row_of(100, 400), row_of(100, 100), row_of(100, 101.9), row_of(100, 98.1),
                                  row_of(100, 102.1), row_of(100, 97.9), row_of(100, 0)});
  EXPECT_EQ(summary.wins, 2);
  EXPECT_EQ(summary.ties, 3);
  EXPECT_EQ(summary.losses, 1);
  EXPECT_EQ(summary.compared, 6);
  EXPECT_NEAR(summary.geomean_speedup, std::pow(4 * 1.019 * 0.981 * 1.021 * 0.979, 1 / 6.0), 1e-12);
}

TEST(Summarize, AFailedAnswerIsALoss) {
  ReportRow wrong = row_of(20, 40);
  wrong.comparison.providers[0].failure = "wrong";
  ReportRow failed;
  failed.failure = "refused";
  const auto summary = summarize({wrong, failed, row_of(100, 400)});
  EXPECT_EQ(summary.losses, 2);
  EXPECT_EQ(summary.wins, 1);
  EXPECT_DOUBLE_EQ(summary.geomean_speedup, 4);
}

TEST(ReportCsv, HasALineAProviderAndEqualColumns) {
  ReportRow failed = row_of(20, 40);
  failed.failure = "refused";
  failed.comparison.providers.clear();
  const auto lines =
      read_csv(report_csv({environment(), std::vector{row_of(20, 40), row_of(20, 0), failed}}));
  ASSERT_EQ(lines.size(), 1u + 2 + 1 + 1);
  for (const auto& line : lines) EXPECT_EQ(line.size(), lines[0].size());
  EXPECT_EQ(lines[0][8], "time_us");
  EXPECT_EQ(lines[1][8], "20");
  EXPECT_EQ(lines[2][5], "onednn blocked=0");
  EXPECT_EQ(lines[4].back(), "refused");
}

// Whatever a format cannot say it refuses by the kind of the report; one that says every report refuses none.
TEST(ReportFormats, WriteOrRefuse) {
  const std::vector<Report> reports = {{environment(), std::vector{row_of(20, 40)}},
                                       {environment(), VerifyReport{}},
                                       {environment(), Refined{}},
                                       {environment(), ModelReport{}},
                                       {environment(), Analyzed{}}};
  for (const ReportFormat& format : report_formats()) {
    std::size_t refused = 0;
    for (const Report& report : reports) try {
        EXPECT_NE(format.write({report}), "");
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
        EXPECT_NE(std::string(error.what()).find("a report of "), std::string::npos) << error.what();
      }
    EXPECT_EQ(refused == 0, format.of_every_report) << format.name;
    EXPECT_LT(refused, reports.size()) << format.name;
  }
}

TEST(ReportCsv, QuotesWhatNeedsIt) {
  const std::string name = "comma, \"quote\"\nand line";
  const auto lines = read_csv(report_csv({environment(), std::vector{row_of(20, 40, name)}}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1][0], name);
  // An unnamed case keeps its empty first field.
  const auto unnamed = read_csv(report_csv({environment(), std::vector{row_of(20, 40, "")}}));
  EXPECT_EQ(unnamed[1][0], "");
  EXPECT_EQ(unnamed[1].size(), unnamed[0].size());
}

TEST(ReportMarkdown, IsATableWithItsVerdictAndItsPlace) {
  ReportRow failed = row_of(20, 40, "c");
  failed.failure = "refused";
  Report report{environment(), std::vector{row_of(20, 40, "a|b"), row_of(20, 0, "<b>"), failed}};
  report.environment.device.name = "Test CPU", report.environment.command = "convtune bench `x`\ny";
  EXPECT_EQ(report_markdown(report),
            "2.00× over the best peer, the geometric mean of 1 case: 1 won, 0 tied (±2 %), 1 lost.\n\n"
            "| case | batch | convtune µs | best peer µs | speed-up | plan | convtune runs |\n"
            "| --- | ---: | ---: | ---: | ---: | --- | --- |\n"
            "| a\\|b | 1 | 20.00 | 40.00 | 2.00× | tuned | direct vectors=4 |\n"
            "| &lt;b> | 1 | 20.00 | - | - | tuned | direct vectors=4 |\n"
            "| c | 1 | - | 40.00 | 2.00× | - | failed: refused |\n"
            "\nTest CPU, 2 CPU threads; convtune 1.2.3; 2024-05-06T07:08:09Z\n\n    convtune bench `x` y\n");
  const std::string one = report_markdown({environment(), std::vector{row_of(20, 40)}});
  EXPECT_TRUE(
      one.starts_with("convtune is 2.00× faster than the best of the vendor's ways, onednn blocked=0"))
      << one;
  ModelReport model;
  model.layers = {{{"stem", "again"}, "", 2, 100, 80, 0.2, 0.1, 0.3, "direct", "", "", true, "swapped"}};
  model.before_us = 900, model.after_us = 850, model.gain = 0.056, model.low = 0.03, model.high = 0.07;
  EXPECT_NE(report_markdown({environment(), model})
                .find("| stem and 1 more | 2 | 100.00 | 80.00 | 20.0 % (10.0 to 30.0 %) | swapped |"),
            std::string::npos);
  EXPECT_THROW(report_markdown({environment(), VerifyReport{}}), Error);
}

TEST(ShortNames, AreWithoutWhatAllHave) {
  const auto [names, left_out] =
      short_names({"/features/features.0/features.0.0/Conv", "/features/features.1/conv/conv.0/conv.0.0/Conv",
                   "/features/features.18/features.18.0/Conv"});
  EXPECT_EQ(names, (std::vector<std::string>{"0/features.0", "1/conv/conv.0/conv.0", "18/features.18"}));
  EXPECT_EQ(left_out, "Layers' names are without “/features/features.” in front and “.0/Conv” behind.");
  for (const std::vector<std::string>& kept :
       {std::vector<std::string>{"layer1.0.conv1", "layer1.1.conv1"},
        {"a_name_of_more_than_twenty_four_letters"},
        {"a_name_of_more_than_twenty_four_letters", ""},
        {"one_name_of_more_than_twenty_four_letters", "another.of.more.than.twenty.four"},
        {}}) {
    EXPECT_EQ(short_names(kept).names, kept);
    EXPECT_EQ(short_names(kept).left_out, "");
  }
  // A name that is another's beginning keeps a word.
  EXPECT_EQ(
      short_names({"backbone.of.the.whole.network.conv", "backbone.of.the.whole.network.conv.conv"}).names,
      (std::vector<std::string>{"conv", "conv.conv"}));
}

}  // namespace
}  // namespace convtune::report_test
