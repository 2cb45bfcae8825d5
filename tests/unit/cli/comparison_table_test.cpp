// A comparison as people read it.
#include "comparison_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "convtune/units.h"
#include "progress.h"
#include "report_rows.h"

namespace convtune::cli::comparison_table_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ProviderResult engine(int nhwc, int number, double time_us, const std::string& failure = {}) {
  const Config config{{{"nhwc", nhwc}, {"engine", number}}};
  return {"cudnn " + to_string(config), "cudnn", config, time_us, 1, 49, 0.25, 2e-7, failure};
}

// convtune beside nine ways of cuDNN's, of which two failed.
ReportRow among_engines(double own_us) {
  ReportRow row = row_of(own_us, 0);
  for (const int number : {33, 11, 44, 2})
    for (const int nhwc : {1, 0})
      row.comparison.providers.push_back(engine(nhwc, number, 1000 + 10 * number + nhwc));
  row.comparison.providers[3].failure = "wrote outside y";
  row.comparison.providers.push_back(engine(0, 7, 0, "out of memory"));
  row.comparison.best_peer = "cudnn nhwc=0 engine=2";
  row.comparison.speedup = 1020 / own_us;
  return row;
}

void expect_to_fit(const std::string& text, int width) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), width) << line;
}

TEST(ComparisonTable, OfEachLayoutTheBestIsShown) {
  const std::string text = render_comparison(among_engines(500).comparison, {});
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("\ncudnn nhwc=1 engine=2 "), HasSubstr("\ncudnn nhwc=0 engine=2 "),
            Not(HasSubstr("\ncudnn nhwc=1 engine=33 ")),
            HasSubstr("\nand 5 slower ways of the vendor's (--all)\n"),
            HasSubstr(
                "\n2 of the vendor's ways failed (--all), as cudnn nhwc=1 engine=11: wrote outside y\n")));
}

TEST(ComparisonTable, AllOfThemWhereThatIsAsked) {
  const std::string text = render_comparison(among_engines(500).comparison, {}, {.all = true});
  for (const char* row : {"nhwc=1 engine=33 ", "nhwc=0 engine=33 ", "nhwc=0 engine=11 ", "nhwc=1 engine=44 ",
                          "nhwc=1 engine=2 "})
    EXPECT_THAT(text, HasSubstr(std::string("\ncudnn ") + row));
  EXPECT_THAT(text,
              AllOf(HasSubstr("\ncudnn nhwc=1 engine=11 failed: wrote outside y\n"),
                    HasSubstr("\ncudnn nhwc=0 engine=7 failed: out of memory\n"), Not(HasSubstr("--all"))));
}

TEST(ComparisonTable, ManyPeersAreADozenRowsAtMost) {
  ReportRow row = among_engines(500);
  for (int number = 100; number < 140; ++number)
    row.comparison.providers.push_back(engine(number % 2, number, 3000 + number));
  const std::string text = render_comparison(row.comparison, {});
  EXPECT_THAT(text, HasSubstr("\nand 45 slower ways of the vendor's (--all)\n"));
  std::istringstream lines(text);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) rows += line.starts_with("cudnn ") ? 1 : 0;
  EXPECT_LE(rows, 12);
}

TEST(ComparisonTable, FitsATerminalOf80Columns) {
  ReportRow row = among_engines(500);
  row.comparison.problem.name = "a_name_that_is_as_long_as_the_longest_of_the_cases_and_more_words";
  row.comparison.plan = {
      "direct",
      parse_config("vector_bits=512 channels=12 vectors=2 rows=2 cols=0 taps=0 filters=48 flat=1 stream=0"),
      PlanSource::tuned, ""};
  row.comparison.providers[0].config = row.comparison.plan.config;
  row.comparison.decision =
      with_config("direct", row.comparison.plan.config) +
      " against cudnn nhwc=0 engine=2: takes 30.9 % less time (99 % interval 30.3..32.1 %) "
      "over 10 rounds, more than the 2 % asked";
  const std::string text = render_comparison(row.comparison, {.terminal = true, .color = false, .width = 80});
  expect_to_fit(text, 80);
  EXPECT_THAT(text, HasSubstr("decision: convtune against cudnn nhwc=0 engine=2: takes 30.9 % less"));
}

TEST(ComparisonTable, OneUnitAColumnAndItsPointsInLine) {
  ReportRow row = row_of(2359, 6264.6);
  EXPECT_THAT(render_comparison(row.comparison, {}),
              AllOf(HasSubstr("time ms"), HasSubstr("   2.359 "), HasSubstr("   6.265 ")));
  row = row_of(1, 30);
  // A problem of 275595.3 GFLOP a second where it takes 1 us.
  row.comparison.problem.k = 1, row.comparison.problem.r = row.comparison.problem.s = 1;
  row.comparison.problem.c = 275595, row.comparison.problem.h = row.comparison.problem.w = 22;
  const std::string text = render_comparison(row.comparison, {});
  EXPECT_THAT(
      text, AllOf(HasSubstr("TFLOP/s"), HasSubstr(" 266.8 "), HasSubstr(" 8.9 "), Not(HasSubstr("GFLOP/s"))))
      << text;
}

TEST(ComparisonTable, ShowsEveryNumberThatItPromises) {
  const std::string text = render_comparison(row_of(20, 40).comparison, {});
  for (const char* expected :
       {"a case: ", "Test CPU, 1 thread, ", "roofline 10.00 us, bound by compute; incumbent oneDNN 3.2.0",
        "speed-up", "2.00x", "1.00x", "GFLOP/s", "GB/s", "50.0 %", "1.0e-07",
        "convtune runs direct vectors=4", "decision: direct wins"})
    EXPECT_THAT(text, HasSubstr(expected));
}

TEST(ComparisonTable, ARecordWithoutABoundReadsWell) {
  ReportRow row = row_of(20, 0);
  row.comparison.roofline.bound = "";
  row.comparison.decision = "";
  EXPECT_THAT(render_comparison(row.comparison, {}),
              AllOf(Not(HasSubstr("bound by")), HasSubstr("50.0 %"), HasSubstr("no peer ran here"),
                    HasSubstr("decision: measured here")));  // the plan's own reason
}

TEST(ComparisonTable, TellsAFailureInsteadOfNumbers) {
  ReportRow row = row_of(20, 40);
  row.comparison.providers[1].failure = "wrote outside y";
  EXPECT_THAT(render_comparison(row.comparison, {}),
              AllOf(HasSubstr("onednn blocked=0 failed: wrote outside y"), Not(HasSubstr("40.0"))));
  row.comparison.providers[0].failure = "wrong";
  row.comparison.providers[0].time_us = 0;
  EXPECT_THAT(render_comparison(row.comparison, {}),
              AllOf(HasSubstr("convtune failed: wrong"), HasSubstr("convtune has no answer here")));
}

TEST(Verdict, SaysInWordsWhoWonByHowMuch) {
  const auto text = [](double own_us, double peer_us) {
    return render_comparison(row_of(own_us, peer_us).comparison, {});
  };
  EXPECT_THAT(text(20, 40),
              HasSubstr("\nconvtune is 2.00x faster than the best of the vendor's ways, onednn blocked=0: "
                        "20.00 us ±5.0 % against 40.00 us ±5.0 %\n"));
  EXPECT_THAT(text(40, 40.4), HasSubstr("onednn blocked=0, are equally fast (±2 %)"));
  EXPECT_THAT(text(40, 20), HasSubstr("convtune is 2.00x slower than"));
  EXPECT_THAT(text(20, 40), Not(HasSubstr("not proven")));
  ReportRow unproven = row_of(20, 40);
  unproven.comparison.plan.source = PlanSource::unproven;
  EXPECT_THAT(render_comparison(unproven.comparison, {}),
              HasSubstr("against 40.00 us ±5.0 % (not proven)\n"));
}

TEST(Verdict, TheVendorsOwnWayIsOneRow) {
  ReportRow row = row_of(40, 40);
  ProviderResult& own = row.comparison.providers[0];
  own.algorithm = row.comparison.plan.algorithm = "onednn";
  own.config = row.comparison.plan.config = row.comparison.providers[1].config = {{{"blocked", 0}}};
  row.comparison.decision = "direct against onednn blocked=0: not proven";
  EXPECT_THAT(render_comparison(row.comparison, {}),
              AllOf(Not(HasSubstr("\nonednn blocked=0 ")), Not(HasSubstr("--all")),
                    HasSubstr("\nconvtune runs the fastest of the vendor's ways, onednn blocked=0\n"
                              "decision: direct against onednn blocked=0: not proven\n")));
}

TuningSummary searched() {
  TuningSummary tuning;
  tuning.candidates = 376;
  tuning.trials = 38;
  tuning.record = "/home/someone/.local/share/convtune/x.json";
  tuning.last_stage = last_stage();
  return tuning;
}

TEST(RenderTuning, SaysOfHowManyAndWhereTheRecordLies) {
  EXPECT_EQ(render_tuning(searched(), {}),
            "search: 38 of 376 candidates tried\n"
            "last stage: direct stages=4 is proven faster than direct stages=3\n"
            "record: plan, conv2d and Python's convtune.conv2d use it from now on\n"
            "  /home/someone/.local/share/convtune/x.json\n");
  TuningSummary tuning = searched();
  tuning.resumed = 2, tuning.pruned = 5, tuning.wrong = 1, tuning.record.clear();
  tuning.last_stage->changed = false;
  EXPECT_EQ(
      render_tuning(tuning, {}),
      "search: 40 of 376 candidates tried, 2 of them in an earlier search; 5 could not have won; 1 failed\n"
      "last stage: 1 neighbour measured, none is proven faster\n");
  tuning.small_batch = 8, tuning.small_trials = 120;
  EXPECT_THAT(render_tuning(tuning, {}),
              HasSubstr("search: 40 of 376 candidates tried, the fastest of 120 on a "
                        "batch of 8, 2 of them in an earlier search;"));
  tuning.last_stage->tried.clear();
  EXPECT_THAT(render_tuning(tuning, {}),
              HasSubstr("last stage: no neighbour was measured (--verbose says why)\n"));
}

TEST(RenderTuning, EveryRuleWhereThatIsAsked) {
  TuningSummary tuning = searched();
  tuning.record.clear();
  EXPECT_EQ(render_tuning(tuning, {}, {.verbose = true}),
            "search: 38 of 376 candidates tried\n"
            "last stage, of direct stages=3\n"
            "  R1: stays\n"
            "  R6: takes 5 % less time\n"
            "      20.00 us  stages=3: the original\n"
            "      19.00 us  stages=4: one stage more\n"
            "             -  stages=2: one stage less; failed: wrote outside y\n");
}

TEST(RenderSummary, ReadsWellForOneAndMany) {
  EXPECT_EQ(render_summary({row_of(100, 200)}, {}),
            "1 win, 0 ties, 0 losses (±2 %); geomean speed-up over the best peer 2.00x (1 case)\n");
  EXPECT_EQ(render_summary({row_of(100, 0)}, {}),
            "0 wins, 0 ties, 0 losses (±2 %); no case has a peer to compare with\n");
}

TEST(Units, SuitTheNumber) {
  EXPECT_EQ(time_text(0.228), "0.228 us");
  EXPECT_EQ(time_text(999.94), "999.9 us");
  EXPECT_EQ(time_text(999.96), "1.000 ms");
  EXPECT_EQ(time_text(13030), "13.03 ms");
  EXPECT_EQ(time_text(2.5e6), "2.500 s");
  EXPECT_EQ(scale_of_us(29.6, 414'800)(414'800), "414.800");  // a column of both is in ms
  EXPECT_STREQ(scale_of_us(29.6, 9'000).unit, "us");
  EXPECT_STREQ(scale_of_us(2'900, 414'800).unit, "ms");
  EXPECT_STREQ(scale_of_us(2'900, 41'480'000).unit, "s");
  EXPECT_STREQ(scale_of_flops(999e9).unit, "GFLOP/s");
  EXPECT_EQ(scale_of_flops(275595.3e9)(275595.3e9), "275.6");
  EXPECT_STREQ(scale_of_flops(275595.3e9).unit, "TFLOP/s");
  EXPECT_STREQ(scale_of_bytes(3010e9).unit, "TB/s");
  EXPECT_EQ(duration_text(11.2), "12 s");
  EXPECT_EQ(duration_text(59.5), "1 min 00 s");
  EXPECT_EQ(duration_text(7300), "2 h 01 min");
}

}  // namespace
}  // namespace convtune::cli::comparison_table_test
