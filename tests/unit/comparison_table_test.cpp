// A comparison as people read it.
#include "comparison_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "report_rows.h"

namespace convtune::cli {
namespace {

TEST(ComparisonTable, OfManyPeersTheFastestAreShown) {
  ReportRow row = row_of(20, 40);
  for (int i = 0; i < 30; ++i)
    row.comparison.providers.push_back(
        {fmt::format("peer {}", i), "onednn", {}, 100.0 + i, 2, 1, 0.1, 2e-7, ""});
  row.comparison.providers.push_back({"broken", "onednn", {}, 0, 0, 0, 0, 0, "wrong"});
  const std::string text = render_comparison(row.comparison, Style{});
  for (const char* shown : {"convtune", "onednn blocked=0", "peer 0 ", "peer 6 ", "failed: wrong"})
    EXPECT_NE(text.find(shown), std::string::npos) << shown << "\n" << text;
  EXPECT_EQ(text.find("peer 7 "), std::string::npos) << text;
  EXPECT_NE(text.find("and 23 peers that took longer"), std::string::npos) << text;
}

TEST(RenderLastStage, ShowsEveryVerdictAndTime) {
  EXPECT_EQ(render_last_stage(last_stage()),
            "last stage, of direct stages=3\n"
            "  R1: stays\n"
            "  R6: takes 5 % less time\n"
            "        20.0 us  stages=3: the original\n"
            "        19.0 us  stages=4: one stage more\n"
            "           - us  stages=2: one stage less; failed: wrote outside y\n");
}

TEST(RenderComparison, ShowsEveryNumberThatTheTablePromises) {
  ReportRow row = row_of(20, 40);
  const std::string text = render_comparison(row.comparison, {});
  for (const char* expected :
       {"a case: ", "Test CPU", "roofline 10.0 us, bound by compute", "vs best peer", "2.00x", "1.00x",
        "GFLOP/s", "GB/s", "50.0 % compute", "1.0e-07", "direct vectors=4", "decision: direct wins"})
    EXPECT_NE(text.find(expected), std::string::npos) << expected << " is not in\n" << text;
}

TEST(RenderComparison, ARecordWithoutABoundReadsWell) {
  ReportRow row = row_of(20, 0);
  row.comparison.roofline.bound = "";
  row.comparison.decision = "";
  const std::string text = render_comparison(row.comparison, {});
  EXPECT_EQ(text.find("bound by"), std::string::npos) << text;
  EXPECT_NE(text.find("50.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("no peer ran here"), std::string::npos) << text;
  EXPECT_NE(text.find("decision: measured here"), std::string::npos) << text;  // the plan's own reason
}

TEST(RenderComparison, TellsAFailureInsteadOfNumbers) {
  ReportRow row = row_of(20, 40);
  row.comparison.providers[1].failure = "wrote outside y";
  const std::string text = render_comparison(row.comparison, {});
  EXPECT_NE(text.find("failed: wrote outside y"), std::string::npos) << text;
  EXPECT_EQ(text.find("40.0"), std::string::npos) << text;
}

TEST(RenderSummary, ReadsWellForOneAndMany) {
  EXPECT_EQ(render_summary({row_of(100, 200)}),
            "geomean speed-up over the best peer 2.00x over 1 case; 1 win, 0 ties, 0 losses (±2 %)\n");
  EXPECT_EQ(render_summary({row_of(100, 0)}),
            "no case has a peer to compare with; 0 wins, 0 ties, 0 losses (±2 %)\n");
}

}  // namespace
}  // namespace convtune::cli
