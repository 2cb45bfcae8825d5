// Findings of analyze(): nothing that is false, what costs most first, and what follows for the two
// parameters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "convtune/refine.h"
#include "expected_text.h"

namespace convtune::analysis_test {
namespace {

using Values = std::vector<std::pair<std::string, double>>;

const Target kAda = find_target("rtx4090");
const char* const kSm = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
const char* const kDram = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
const char* const kWarps = "sm__warps_active.avg.pct_of_peak_sustained_active";
const char* const kLongScoreboard = "smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct";

std::vector<Finding> found(Values values, const AnalyzeOptions& options = {}) {
  return analyze({"k", std::move(values)}, kAda, options);
}

std::string said(const std::vector<Finding>& findings, std::string_view what) {
  for (const Finding& finding : findings)
    if (finding.what == what) return finding.text;
  return {};
}

void expect_not_in(const std::string& text, std::string_view needle) {
  EXPECT_EQ(text.find(needle), text.npos) << text;
}

// Registers alone: what they allow is known, and that shared memory is not there is said of it alone.
TEST(Analysis, WhatIsThereIsNotSaidToBeMissing) {
  const auto findings = found({{"launch__grid_size", 48400},
                               {"launch__block_size", 128},
                               {"launch__registers_per_thread", 128},
                               {kWarps, 33}});
  const std::string occupancy = said(findings, "occupancy"), warps = said(findings, "num_warps");
  expect_in(occupancy, {"4 blocks of 4 warps fit", "limited by registers as far as is known",
                        "registers allow 4", "shared memory what is not known"});
  expect_not_in(occupancy, "launch__registers_per_thread");
  expect_in(warps, {"4 blocks of 4 warps"});
  expect_in(said(findings, "tail"), {"x 4 blocks"});
}

// If known limits allow more than was active, a limit that is not known explains it.
TEST(Analysis, OneCountOfBlocks) {
  const auto findings = found({{"launch__grid_size", 48400},
                               {"launch__block_size", 128},
                               {"launch__registers_per_thread", 40},
                               {kWarps, 33}});
  const std::string occupancy = said(findings, "occupancy");
  expect_in(occupancy,
            {"4 blocks of 4 warps a multiprocessor, where 12 would fit if registers, warps and block "
             "slots alone counted",
             "bytes of shared memory a block would explain it", "launch__shared_mem_per_block"});
  expect_not_in(occupancy, "registers a thread would");
  expect_in(said(findings, "num_warps"), {"4 blocks of 4 warps"});
}

TEST(Analysis, ReadingsThatCannotBe) {
  const std::pair<Values, std::vector<const char*>> cases[] = {
      {{{"launch__grid_size", 128}, {"launch__block_size", 256}, {kWarps, 90}},
       {"a grid of 128 blocks is at most 1 of 8 warps", "16.7 %", "90.0 %", "another GPU than rtx4090"}},
      {{{"launch__block_size", 128}, {"launch__registers_per_thread", 255}, {kWarps, 90}},
       {"2 blocks of 4 warps fit at most, limited by registers", "90.0 %"}},
      {{{"dram__bytes_read.sum", 4e9}, {"gpu__time_duration.sum", 1e6}},
       {"4000 GB/s", "1008 GB/s of rtx4090"}},
      {{{"launch__shared_mem_per_block", 200000}}, {"200000 bytes of shared memory a block"}},
      {{{"launch__grid_size", 3}, {kWarps, 128.03}}, {kWarps, "128.03 %, which cannot be"}},
  };
  for (const auto& [values, needles] : cases) {
    const auto findings = found(values);
    EXPECT_EQ(findings[0].what, "readings");
    for (const char* needle : needles) expect_in(findings[0].text, {needle});
    expect_in(said(findings, "num_warps"), {"no change follows"});
  }
  for (const Values& sound : {Values{{"launch__grid_size", 128}, {"launch__block_size", 256}, {kWarps, 16}},
                              Values{{"launch__grid_size", 1280}, {"launch__block_size", 256}, {kWarps, 90}}})
    EXPECT_TRUE(said(found(sound), "readings").empty());
}

TEST(Analysis, StallsDecideAboutStages) {
  const auto stages = [](double share) { return said(found({{kLongScoreboard, share}}), "num_stages"); };
  expect_in(stages(70), {"one more may help", "70.0 %"});
  expect_in(stages(3), {"one more cannot help much", "3.0 %", "one less"});
  expect_in(said(analyze({"k", {{kLongScoreboard, 3}}}, find_target("h100")), "num_stages"),
            {"one more or one less", "TMA"});
  expect_in(said(found({{kSm, 5}}), "num_stages"), {"stalls would say which"});
  const auto findings =
      found({{"smsp__average_warp_latency_per_inst_issued.ratio", 20},
             {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", 4},
             {"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", 12}});
  EXPECT_EQ(findings[0].what, "stalls");
  expect_in(findings[0].text,
            {"60.0 % of a warp's cycles wait for other warps at a barrier", "20.0 % for data"});
  // No loop: nothing to pipeline, whatever waits.
  AnalyzeOptions options;
  options.source = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\ndef f(x):\n    k[(7,)](x)\n";
  expect_in(said(found({{kLongScoreboard, 70}}, options), "num_stages"), {"does nothing"});
}

TEST(Analysis, SpillsAreNamed) {
  expect_in(said(found({{"smsp__inst_executed_op_local_ld.sum", 0}}), "spills"), {"none"});
  const auto findings = found({{"smsp__inst_executed_op_local_ld.sum", 4096},
                               {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", 1e6},
                               {"dram__bytes_read.sum", 64e6},
                               {kSm, 30},
                               {kDram, 20}});
  EXPECT_EQ(findings[0].what, "spills");
  expect_in(findings[0].text,
            {"4096 loads are from local memory", "32.0 MB", "0.5 times", "more warps a block"});
}

TEST(Analysis, WhatCostsMostComesFirst) {
  EXPECT_EQ(found({{kSm, 12}, {kDram, 93.4}, {kLongScoreboard, 80}})[0].what, "bound");
  EXPECT_EQ(found({{kSm, 12}, {kDram, 20}, {"launch__grid_size", 16}})[0].what, "tail");
  EXPECT_EQ(found({{kSm, 30}, {kDram, 20}, {kLongScoreboard, 80}})[0].what, "stalls");
  EXPECT_EQ(found({{kSm, 30}, {kDram, 20}, {kLongScoreboard, 5}})[0].what, "bound");
}

TEST(Analysis, WhatIsMissingIsOneFinding) {
  const auto findings = found({{kSm, 30}, {kDram, 20}});
  const auto missing = std::count_if(findings.begin(), findings.end(), [](const Finding& one) {
    return one.text.find("not in the metrics") != std::string::npos || one.what == "not in the metrics";
  });
  EXPECT_EQ(missing, 1);
  EXPECT_EQ(findings.back().what, "not in the metrics");
  expect_in(findings.back().text, {"config and tail", "spills", "launch__grid_size", "too"});
}

// A hit rate says nothing of a kernel that reads everything once.
TEST(Analysis, AStreamIsNotReadAgain) {
  for (const Values& stream : {Values{{"lts__t_sector_hit_rate.pct", 50}, {kDram, 92}},
                               Values{{"lts__t_sector_hit_rate.pct", 1.6}, {"dram__bytes_read.sum", 8e6}}})
    expect_not_in(said(found(stream), "cache"), "much is read");
}

TEST(Analysis, ACacheMayBeWhatIsBusy) {
  const auto bound = said(found({{kSm, 97.5},
                                 {kDram, 25},
                                 {"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 97.5},
                                 {"l1tex__throughput.avg.pct_of_peak_sustained_active", 97.6},
                                 {"lts__throughput.avg.pct_of_peak_sustained_elapsed", 21}}),
                          "bound");
  expect_in(bound, {"that through L1 and shared memory", "97.5 %", "not memory"});
}

}  // namespace
}  // namespace convtune::analysis_test
