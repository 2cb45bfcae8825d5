// Pages of reports: what must be there, what must never be, and how large they are. Their structure and how a
// browser takes them: tests/cli/html_test.py.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "convtune/error.h"
#include "convtune/report.h"
#include "report_rows.h"

namespace convtune::page_test {
namespace {

HeldContest held(std::size_t rounds) {
  HeldContest contest{"onednn blocked=0", "direct vectors=4", {}};
  ContestResult& result = contest.result;
  result.min_gain = 0.02, result.confidence = 0.99, result.gain = 0.12, result.interval = {0.1, 0.14};
  result.accepted = true, result.rounds = static_cast<int>(rounds);
  for (std::size_t i = 0; i < 2 * rounds; ++i) {
    result.incumbent_us.push_back(100 + static_cast<double>(i % 7));
    result.challenger_us.push_back(88 + static_cast<double>(i % 5));
  }
  return contest;
}

ReportRow searched(const std::string& name, std::size_t peers, std::size_t tries) {
  ReportRow row = row_of(20, 40, name);
  row.comparison.problem.precision = Precision::fp32;
  row.comparison.roofline = {10, "compute", 4e11, 5e10};
  for (std::size_t i = 0; i < peers; ++i) {
    ProviderResult peer = row.comparison.providers[1];
    peer.name = "cudnn nhwc=0 engine=" + std::to_string(i) + " heuristic=1";
    peer.time_us += static_cast<double>(i);
    row.comparison.providers.push_back(peer);
  }
  row.comparison.resources = Resources{168, 384, 0, 99'328, 264, {}};
  row.comparison.resources->occupancy = {1, 12, 0.1875, Limiter::shared_memory};
  row.tuning.emplace().contest = held(40);
  row.tuning->last_stage = last_stage();
  row.tuning->last_stage->contests = {held(20), held(20)};
  for (std::size_t i = 0; i < tries; ++i)
    row.tuning->steps.push_back({"direct_stem_sm90",
                                 {{{"units", static_cast<std::int64_t>(i)}}},
                                 i < 3,
                                 false,
                                 20 + static_cast<double>(i * 7919 % 113),
                                 i % 17 == 16 ? "wrong" : ""});
  return row;
}

std::string page_of(std::vector<ReportRow> rows) {
  ReportEnvironment environment{
      {}, 2, {{"convtune", "1.2.3"}}, "2024-05-06T07:08:09Z", "convtune tune 'a b'"};
  environment.device.name = "Test CPU";
  return report_page({Report{environment, std::move(rows)}});
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(Page, HasTheNumbersOfAReport) {
  const std::string page = page_of({searched("a case", 2, 50)});
  for (const char* words :
       {"Tuning of a case (batch 1) on Test CPU", "convtune is 2.00× faster", "20.00 µs", "40.00 µs",
        "convtune tune &#39;a b&#39;", "1.2.3", "direct wins", "median 12.0 %", "asked 2.0 %",
        "99 % interval 10.0 to 14.0 %", "12 warps", "shared memory", "R6: takes 5 % less time",
        "stages=4: one stage more", "wrote outside y", "fp32 400 GFLOP/s", "memory 50 GB/s"})
    EXPECT_NE(page.find(words), page.npos) << words;
  // Each for a wide and for a narrow screen: roofline, times, contest, search, two contests of the last
  // stage.
  EXPECT_EQ(count(page, "<svg class=\"wide\""), 6u);
  EXPECT_EQ(count(page, "<svg class=\"narrow\""), 6u);
  EXPECT_EQ(count(page, "h0M") + 10,
            2 * (40u + 20 + 20 + 45 + 2));  // dots: rounds, our tries with a time, peers
}

TEST(Page, BeginsWithItsVerdictAndEndsWithItsPlace) {
  ReportRow guessed = row_of(20, 40, "");
  guessed.comparison.problem.n = 2, guessed.comparison.plan.source = PlanSource::estimate;
  const std::string one = page_of({guessed}), two = page_of({guessed, searched("other", 1, 5)});
  EXPECT_NE(one.find("(batch 2) on Test CPU</h1>\n<p class=\"verdict\">convtune is 2.00× faster"), one.npos);
  EXPECT_NE(one.find("No contest was held"), one.npos);
  EXPECT_NE(
      two.find(
          "</h1>\n<p class=\"verdict\">2.00× over the best peer, the geometric mean of 2 cases. 2 of 2 cases "
          "won, 1 of them proven in a contest; 0 tied (±2 %), 0 lost."),
      two.npos);
  EXPECT_NE(two.find("No contest was held for 1 case:"), two.npos);
  for (const std::string* page : {&one, &two}) {
    EXPECT_NE(page->find("<summary>Device, versions, date and command</summary>"), page->npos);
    EXPECT_LT(page->rfind("<section>"), page->find("<summary>Device, versions"));
  }
  const std::string proven = page_of({searched("a case", 2, 50)});
  EXPECT_NE(proven.find("The gain is proven in a contest."), proven.npos);
  EXPECT_EQ(proven.find("No contest was held"), proven.npos);
}

TEST(Page, ExplainsWhatAChartHas) {
  ReportRow row = row_of(20, 40);
  EXPECT_NE(page_of({row}).find("a whisker is"), std::string::npos);
  for (ProviderResult& one : row.comparison.providers) one.mad_us = 0;
  EXPECT_EQ(page_of({row}).find("a whisker is"), std::string::npos);
  EXPECT_EQ(page_of({row}).find("is cut"), std::string::npos);
  row.comparison.providers[1].time_us = 4000;
  EXPECT_NE(page_of({row}).find("is cut"), std::string::npos);
}

TEST(Page, AFewSlowTriesDoNotPressTheOthersIntoALine) {
  ReportRow row = searched("a case", 2, 200);
  for (const std::size_t slow : {40u, 90u, 150u})
    row.tuning->steps[slow].time_us = 40'000, row.tuning->steps[slow].failure = "";
  const std::string page = page_of({row});
  EXPECT_NE(page.find("3 took longer than "), page.npos);
  EXPECT_NE(page.find("and stand at the upper edge"), page.npos);
  EXPECT_EQ(page.find(">10 ms<"), page.npos) << "the axis goes on beyond what is drawn";
}

TEST(Page, LayersOfAModelAreToldApart) {
  std::vector<ReportRow> rows;
  for (const char* name :
       {"/features/features.0/features.0.0/Conv", "/features/features.1/conv/conv.0/conv.0.0/Conv"}) {
    rows.push_back(searched(name, 1, 5));
    rows.back().layers = {name};
  }
  const std::string page = page_of(rows);
  EXPECT_NE(page.find(">1/conv/conv.0/conv</text>"), page.npos);
  EXPECT_NE(page.find("without “/features/features.” in front"), page.npos);
}

TEST(Page, KeepsForeignTextOutOfItsMarkup) {
  const std::string bad = "<script>alert(1)</script>\"'&\x1b\x01";
  ReportRow row = searched(bad, 1, 5);
  Comparison& comparison = row.comparison;
  comparison.decision = comparison.best_peer = comparison.providers[0].algorithm =
      comparison.providers[1].name = bad;
  comparison.providers[1].failure = comparison.device.fingerprint = comparison.roofline.bound = bad;
  row.tuning->record = row.tuning->not_recorded = row.tuning->contest->challenger = bad;
  row.tuning->warnings = row.tuning->last_stage->verdicts = {bad};
  row.tuning->steps[1].algorithm = row.tuning->last_stage->tried[1].reason = bad;
  RefinedKernel kernel;
  kernel.kernel = kernel.original = kernel.unknown = kernel.place = bad;
  kernel.findings = {{bad, bad}}, kernel.notes = kernel.verdicts = kernel.configs = {bad};
  kernel.measured = {{bad, bad, 5, 1, 3, bad, ""}, {bad, bad, 0, 0, 0, bad, bad}};
  ModelReport model;
  model.mode = bad, model.notes = {bad}, model.before_us = 5, model.after_us = 4;
  model.layers = {{{bad}, bad, 1, 5, 4, 0.2, 0.1, 0.3, bad, bad, bad, true, bad}};
  ReportEnvironment from{{}, 2, {{bad, bad}}, bad, bad};
  from.device.name = from.device.fingerprint = bad;
  const std::string page =
      report_page({Report{from, std::vector{row}, true},
                   Report{from, VerifyReport{1, 1, 0, 1, {{comparison.problem, bad, {}, bad, bad}}}},
                   Report{from, Refined{"", {bad}, {kernel}, false}}, Report{from, model}});
  EXPECT_EQ(count(page, "<script"), 1u);
  EXPECT_GT(count(page, "alert(1)"), 40u);
  EXPECT_EQ(page.find_first_of("\x1b\x01"), page.npos);
}

TEST(Page, FetchesNothing) {
  const std::string page = page_of({searched("a case", 2, 50)});
  EXPECT_NE(page.find("default-src 'none'"), page.npos);
  for (const char* word : {"http:", "https:", "src=", "@import", "url(", " style=", "javascript:"})
    EXPECT_EQ(page.find(word), page.npos) << word;
}

TEST(Page, OfSixtyCasesIsNotLarge) {
  std::vector<ReportRow> rows;
  for (int i = 0; i < 60; ++i) rows.push_back(searched("case_number_" + std::to_string(i), 60, 600));
  const std::string page = page_of(rows);
  EXPECT_LE(page.size(), std::size_t{500} * 1024);
  EXPECT_NE(page.find("60 of 60 cases won"), page.npos);
  EXPECT_NE(page.find("id=\"r1-60\""), page.npos);
}

TEST(Page, TakesWhatNumbersThereAre) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                   kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double odd : {0.0, -1.0, 1e-300, 1e300, kInfinity, -kInfinity, kNan}) {
    ReportRow row = searched("odd", 3, 5);
    row.comparison.roofline = {odd, "compute", odd, odd};
    for (ProviderResult& one : row.comparison.providers)
      one.mad_us = one.roofline_fraction = one.max_error = odd;
    row.comparison.providers[2].time_us = odd;
    row.comparison.speedup = odd;
    ContestResult& contest = row.tuning->contest->result;
    contest.interval = {odd, odd}, contest.gain = contest.min_gain = contest.incumbent_us[3] = odd;
    row.tuning->steps[2].time_us = row.tuning->steps[4].time_us = odd;
    const std::string page = page_of({row});
    EXPECT_LT(page.size(), 200'000u) << odd;
    EXPECT_EQ(page.find("=\"nan"), page.npos) << odd;
    EXPECT_EQ(page.find("=\"inf"), page.npos) << odd;
    row.comparison.providers[0].time_us = odd;
    page_of({row, row});
  }
  page_of({});
  EXPECT_THROW(report_page({}), Error);
}

}  // namespace
}  // namespace convtune::page_test
