// Forms in which people have Nsight Compute's numbers: each is read, or refused with the reason and what to
// do, and none gives an analysis in which everything is missing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "convtune/error.h"
#include "convtune/refine.h"
#include "expected_text.h"
#include "mutations.h"
#include "profile/known_metrics.h"
#include "profile/ncu.h"
#include "refusal.h"

namespace convtune::ncu_forms_test {
namespace {

const std::string kDetailsHead =
    R"("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",)"
    R"("Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",)"
    R"("Rule Description","Estimated Speedup Type","Estimated Speedup")"
    "\n";

// A line of the details page; `behind`: the columns of a rule.
std::string detail(const std::string& section, const std::string& metric, const std::string& unit,
                   const std::string& value, const std::string& behind = R"("","","","","")") {
  return fmt::format(
             R"x("0","71","python3","host","gemm(float *, int)","1","7","(256, 1, 1)","(64, 18, 1)","0",)x"
             R"x("8.9","{}","{}","{}","{}",{})x",
             section, metric, unit, value, behind) +
         '\n';
}

struct Expected {
  const char* name;
  std::string text;
  const char* kernel;
  std::string values;  // JSON, by ncu's names, in base units
};

const char* const kTime = "gpu__time_duration.sum";
const char* const kLongScoreboard =
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio";

const std::string kPage =
    R"page(==PROF== Connected to process 4242 (/usr/bin/python3.11)
max error 0.0001 of 1024
[4242] python3.11@127.0.0.1
  void gemm<128, 8>(const float *, float *, int) (64, 18, 1)x(16, 16, 1), Context 1, Stream 7, Device 0, CC 8.6
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    DRAM Frequency                  Ghz         7.59
    Elapsed Cycles                cycle      166,261
    Memory Throughput                 %        62.25
    DRAM Throughput                   %        31.50
    Duration                         us       117.25
    Compute (SM) Throughput           %        44.75
    ----------------------- ----------- ------------

    OPT   Est. Speedup: 23.81%
          The grid for this launch is configured to execute only 64 blocks, which is less than the 84

    Section: Memory Workload Analysis
    Local Memory Spilling Requests                          no data
    Memory Throughput                Gbyte/s        24.00
    L2 Hit Rate                            %        30.75
    Section: Warp State Statistics
    Warp Cycles Per Issued Instruction             cycle        10.00
    Stall Long Scoreboard                           inst         6.25
    Section: Launch Statistics
    Block Size                                                     256
    Function Cache Configuration                     CachePreferShared
    Grid Size                                                    1,152
    Registers Per Thread             register/thread               111
    Dynamic Shared Memory Per Block       Kbyte/block            67.58
    Static Shared Memory Per Block        byte/block                 0
    Section: Occupancy
    Block Limit Registers                 block            2
    Block Limit Shared Mem                block            1
    Theoretical Occupancy                     %        16.67
    Achieved Occupancy                        %        16.25
)page";

std::vector<Expected> forms() {
  const std::string raw_head =
      R"("ID","Process ID","Kernel Name","Block Size","Grid Size","CC","dram__bytes.sum","gpu__time_duration.sum",)"
      R"("launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed")"
      "\n"
      R"("","","","","","","Mbyte","usecond","register/thread","%")"
      "\n";
  const std::string raw_row =
      R"x("0","9","gemm","(256, 1, 1)","(64, 18, 1)","9.0","1,024.50","2.50","96","61.50")x"
      "\n";
  const std::string raw =
      R"({"dram__bytes.sum": 1024.5e6, "gpu__time_duration.sum": 2500, )"
      R"("launch__registers_per_thread": 96, )"
      R"("sm__throughput.avg.pct_of_peak_sustained_elapsed": 61.5, "launch__grid_size": 1152, )"
      R"("launch__block_size": 256})";
  return {
      {"JSON of kernels", R"({"k": {"launch__grid_size": 7}})", "k", R"({"launch__grid_size": 7})"},
      {"JSON with units",
       R"({"k": {"gpu__time_duration.sum": {"value": 2.5, "unit": "us"}, "dram__bytes.sum":)"
       R"( {"value": "1,024", "unit": "Kbyte"}}})",
       "k", R"({"gpu__time_duration.sum": 2500, "dram__bytes.sum": 1024e3})"},
      {"JSON under kernels",
       R"({"gpu": "A100", "kernels": [{"name": "a", "metrics": {"launch__grid_size": 7}}]})", "a",
       R"({"launch__grid_size": 7})"},
      {"JSON with a list of metrics",
       R"({"kernels": [{"kernel": "a", "metrics": [{"name": "Duration", "value": 3, "unit": "us"}]}]})", "a",
       R"({"gpu__time_duration.sum": 3000})"},
      {"JSON of one launch, flat",
       R"({"launch__grid_size": "1,152", "sm__throughput.avg.pct_of_peak_sustained_elapsed": 5})",
       "unnamed kernel",
       R"({"launch__grid_size": 1152, "sm__throughput.avg.pct_of_peak_sustained_elapsed": 5})"},
      {"records, numbers as text",
       R"([{"ID": "0", "Kernel Name": "gemm", "launch__grid_size": "1,152", "CC": "8.9", "launch__block_size": "256"}])",
       "gemm", R"({"launch__grid_size": 1152, "launch__block_size": 256})"},
      {"records, a metric each",
       R"([{"ID": 0, "Kernel Name": "k", "Metric Name": "Registers Per Thread", "Metric Unit": "register/thread",)"
       R"( "Metric Value": "64"}, {"ID": 0, "Kernel Name": "k", "Metric Name": "Duration", "Metric Unit": "ms",)"
       R"( "Metric Value": "1.25"}])",
       "k", R"({"launch__registers_per_thread": 64, "gpu__time_duration.sum": 1.25e6})"},
      {"null and NaN are not there",
       "{\"k\": {\"launch__grid_size\": 7, \"launch__block_size\": null, \"dram__bytes.sum\": NaN, "
       "\"gpu__time_duration.sum\": -Infinity}}",
       "k", R"({"launch__grid_size": 7})"},
      {"values with their unit",
       R"({"k": {"Registers Per Thread": "128 register/thread", "Achieved Occupancy": "33.02 %"}})", "k",
       R"({"launch__registers_per_thread": 128, )"
       R"("sm__warps_active.avg.pct_of_peak_sustained_active": 33.02})"},
      {"the raw page", raw_head + raw_row, "gemm", raw},
      {"the raw page among the program's lines",
       "epoch 1, loss 0.5\n==PROF== Profiling \"gemm\" - 0: 0%....50%....100% - 9 passes\n" + raw_head +
           "epoch 2, loss 0.25\n" + raw_row + "done, \"well\"\n==PROF== Disconnected from process 9\n",
       "gemm", raw},
      {"the raw page, saved again without quotes",
       "ID,Kernel Name,Block Size,launch__grid_size,gpu__time_duration.sum\n,,,,us\n0,gemm,\"(256, 1, "
       "1)\",1152.0,2.5\n",
       "gemm", R"({"launch__grid_size": 1152, "gpu__time_duration.sum": 2500, "launch__block_size": 256})"},
      {"the details page as CSV",
       "==WARNING== Note: Running with unmodified GPU clocks.\n" + kDetailsHead +
           detail("GPU Speed Of Light Throughput", "Memory Throughput", "%", "55.25") +
           detail("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "44.50") +
           detail("GPU Speed Of Light Throughput", "Duration", "msecond", "1.20") +
           detail("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "70.25") +
           detail("Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "425.50") +
           detail("SpeedOfLight", "", "", "", R"("SOLBottleneck","OPT","Memory, ""L2"" is used","","")") +
           detail("Launch Statistics", "Static Shared Memory Per Block", "Kbyte/block", "8.19") +
           detail("Occupancy", "Achieved Occupancy", "%", "33.25"),
       "gemm(float *, int)",
       R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 70.25, )"
       R"("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 44.5, )"
       R"("gpu__time_duration.sum": 1.2e6, )"
       R"("sm__warps_active.avg.pct_of_peak_sustained_active": 33.25, "launch__grid_size": 1152, )"
       R"("launch__block_size": 256, "launch__shared_mem_per_block_static": 8190})"},
      {"the details page, where a metric's line ends before the rule",
       kDetailsHead + detail("GPU Speed Of Light Throughput", "SM Frequency", "hz", "1239496049.13", "") +
           detail("GPU Speed Of Light Throughput", "Duration", "ns", "406240", "") +
           detail("LaunchStats", "", "", "", R"("LaunchConfiguration","OPT","A wave","global","50")") +
           detail("Launch Statistics", "Registers Per Thread", "register/thread", "168", ""),
       "gemm(float *, int)", R"({"gpu__time_duration.sum": 406240, "launch__registers_per_thread": 168})"},
      {"the details page, an old one",
       R"csv("ID","Kernel Name","Kernel Time","Section Name","Metric Name","Metric Unit","Metric Value"
"0","cfd(int,float*)","2020-May-29 12:02:46","GPU Speed Of Light","SM [%]","%","22.50"
"0","cfd(int,float*)","2020-May-29 12:02:46","GPU Speed Of Light","SOL FB","%","46.50"
"0","cfd(int,float*)","2020-May-29 12:02:46","Launch Statistics","Grid Size","","506"
)csv",
       "cfd(int,float*)",
       R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 22.5, )"
       R"("dram__throughput.avg.pct_of_peak_sustained_elapsed": 46.5, "launch__grid_size": 506})"},
      {"the details page, a line a kernel's summary",
       R"csv(==PROF== Connected
"Process ID","Kernel Name","Invocations","Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"
"1","k","2","GPU Speed Of Light Throughput","DRAM Throughput","%","5","15","10"
"1","k","2","GPU Speed Of Light Throughput","Duration","us","1","3","2"
)csv",
       "k",
       R"({"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 10, )"
       R"("gpu__time_duration.sum": 2000})"},
      {"metrics by ncu's names, a line each",
       "\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
       "\"0\",\"k\",\"\",\"dram__bytes_read.sum\",\"Mbyte\",\"2.5\"\n"
       "\"0\",\"k\",\"\",\"lts__t_sector_hit_rate.pct\",\"%\",\"(!) n/a\"\n"
       "\"0\",\"k\",\"\",\"smsp__inst_executed_op_local_ld.sum\",\"inst\",\"12,000\"\n",
       "k", R"({"dram__bytes_read.sum": 2.5e6, "smsp__inst_executed_op_local_ld.sum": 12000})"},
      {"the window's list of launches",
       R"csv("ID","Function Name","Duration","Compute Throughput","# Registers","Grid Size","Block Size"
"","","us","%","register/thread","",""
"0","vectorAdd","3.97","8.63","16","196, 1, 1","256, 1, 1"
)csv",
       "vectorAdd",
       R"({"gpu__time_duration.sum": 3970, "sm__throughput.avg.pct_of_peak_sustained_elapsed": 8.63, )"
       R"("launch__registers_per_thread": 16, "launch__grid_size": 196})"},
      {"the details page as text", kPage, "void gemm<128, 8>(const float *, float *, int)",
       R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 44.75, )"
       R"("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 31.5, )"
       R"("gpu__time_duration.sum": 117250, )"
       R"("sm__warps_active.avg.pct_of_peak_sustained_active": 16.25, "launch__grid_size": 1152, )"
       R"("launch__block_size": 256, "launch__registers_per_thread": 111, )"
       R"("lts__t_sector_hit_rate.pct": 30.75, "launch__occupancy_limit_shared_mem": 1, )"
       R"("launch__shared_mem_per_block_dynamic": 67580, )"
       R"("smsp__average_warp_latency_per_inst_issued.ratio": 10, )"
       R"("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 6.25})"},
      {"a page that begins with its process", kPage.substr(kPage.find("[4242]")),
       "void gemm<128, 8>(const float *, float *, int)",
       R"({"launch__grid_size": 1152, "sm__throughput.avg.pct_of_peak_sustained_elapsed": 44.75})"},
      {"a page within notes",
       "# Matrix product\n\n```\n" + kPage.substr(kPage.find("  void gemm")) + "```\nMuch faster now.\n",
       "void gemm<128, 8>(const float *, float *, int)",
       R"({"launch__grid_size": 1152, "sm__throughput.avg.pct_of_peak_sustained_elapsed": 44.75})"},
      {"a page without its launch", kPage.substr(kPage.find("    Section: GPU Speed")), "unnamed kernel",
       R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 44.75, )"
       R"("launch__registers_per_thread": 111})"},
      {"an old page, with a date and no sizes",
       "  warmup(float*), 2024-Aug-28 11:14:50, Context 1, Stream 7\n"
       "    Section: GPU Speed Of Light\n"
       "    ---------------------------------------------------------- --------------- ----------\n"
       "    Memory [%]                                                               %      64.06\n"
       "    Compute (SM) [%]                                                         %      12.50\n"
       "    Duration                                                           usecond     889.25\n",
       "warmup(float*)",
       R"({"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 64.06, )"
       R"("sm__throughput.avg.pct_of_peak_sustained_elapsed": 12.5, "gpu__time_duration.sum": 889250})"},
      {"a page of metrics by ncu's names",
       "[7] a.out@127.0.0.1\n  k(float *) (32, 32, 1)x(32, 32, 1), Context 1, Stream 7, Device 0, CC 12.0\n"
       "    Section: Command line profiler metrics\n"
       "    -------------------------------------------------------- ----------- ------------\n"
       "    Metric Name                                              Metric Unit Metric Value\n"
       "    l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum                1,015,808\n"
       "    l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum                sector   16,777,216\n"
       "    dram__throughput.avg_pct_of_peak_sustained_elapsed                        (!) n/a\n",
       "k(float *)",
       R"({"launch__grid_size": 1024, "launch__block_size": 1024, )"
       R"("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1015808})"},
      {"a page with remarks",
       "  k (4, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.7\n"
       "    Duration                         us       106.50  # 32,515 cycles\n",
       "k", R"({"gpu__time_duration.sum": 106500, "launch__grid_size": 4})"},
      {"a page as people copy it, the unit last",
       "  k (702, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
       "Compute (SM) Throughput                60.25 %\nRegisters Per Thread                        56\n"
       "Warp Cycles Per Issued Instruction          14.00\nStall Barrier                                3.50 "
       "cycles\n",
       "k",
       R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 60.25, )"
       R"("launch__registers_per_thread": 56, )"
       R"("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": 3.5})"},
      {"a summary as text",
       "  k, Device 0, CC 8.6, Invocations 3\n    Section: GPU Speed Of Light Throughput\n"
       "    Metric Name             Metric Unit      Minimum      Maximum      Average\n"
       "    Duration                         us        10.25        30.25        20.50\n",
       "k", R"({"gpu__time_duration.sum": 20500})"},
      {"the other language, CSV",
       kDetailsHead + detail("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "65,75") +
           detail("GPU Speed Of Light Throughput", "Duration", "ns", "117.344") +
           detail("Launch Statistics", "Grid Size", "", "48.400") +
           detail("Occupancy", "Achieved Occupancy", "%", "33,25"),
       "gemm(float *, int)",
       R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 65.75, )"
       R"("gpu__time_duration.sum": 117344, "launch__grid_size": 1152, )"
       R"("sm__warps_active.avg.pct_of_peak_sustained_active": 33.25})"},
      {"the other language, text",
       "    Section: Warp State Statistics\n    ------------------------------- --------------- ---------\n"
       "    Stall Barrier                              inst             0\n"
       "    Stall IMC Miss                             inst         62,25\n"
       "    Stall Long Scoreboard                      inst         20,50\n"
       "    Selected                                   inst             1\n"
       "    Stall Wait                                 inst         16,25\n",
       "unnamed kernel",
       R"({"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 20.5, )"
       R"("smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio": 62.25})"},
      {"Windows' ends of lines and its first bytes",
       "\xef\xbb\xbf" + raw_head.substr(0, raw_head.find('\n')) + "\r\n" +
           raw_head.substr(raw_head.find('\n') + 1) + raw_row,
       "gemm", raw},
  };
}

TEST(NcuForms, AreRead) {
  const Target target = find_target("rtx4090");
  for (const Expected& form : forms()) {
    SCOPED_TRACE(form.name);
    std::vector<KernelMetrics> all;
    ASSERT_NO_THROW(all = parse_metrics(form.text));
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].kernel, form.kernel);
    const auto values = nlohmann::json::parse(form.values).get<std::map<std::string, double>>();
    for (const auto& [metric, value] : values) {
      const auto found = all[0].find(metric);
      EXPECT_NEAR(found.value_or(-1), value, 1e-9 * value) << metric;
    }
    const auto findings = analyze(all[0], target);
    EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [](const Finding& one) {
      return one.what != "not in the metrics" && one.what != "num_warps" && one.what != "num_stages";
    }));
    // Its own JSON gives the same again.
    EXPECT_EQ(parse_metrics(to_json(all))[0].values, all[0].values);
  }
}

TEST(NcuForms, AreRefusedWithTheReason) {
  const std::pair<std::string, std::vector<const char*>> cases[] = {
      {R"({"k": {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 4}})",
       {"hold no metric of 'k'", "ncu --set full --csv --page raw"}},
      {std::string("NVR\0\1\2", 6), {"ncu --import FILE --csv --page raw"}},
      {"==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
       {"ncu measured nothing: ERR_NVGPUCTRPERM"}},
      {"  k (1, 1, 1)x(1, 1, 1), nothing else\n", {"not JSON", "ncu --csv"}},
      {"    Section: Source Counters\n    Branch Efficiency       %     100\n",
       {"hold no metric", "ncu --set full"}},
      {"\"ID\",\"Section Name\",\"Metric Name\",\"Metric Value\"\n\"0\",\"a\",\"b\",\"1\"\n",
       {"no column \"Kernel Name\""}},
      {"\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n==WARNING== No kernels were "
       "profiled.\n",
       {"holds no launch", "No kernels were profiled"}},
      {kDetailsHead + R"("0","71","python3","host","gemm")" + "\n",
       {"a line has 5 fields, and the first has 20"}},
      {"\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"\n\"\",\"\",\"ns\"\n\"0\",\"k\"\n",
       {"2 fields", "has 3"}},
      {"\"ID\",\"Kernel Name\",\"launch__grid_size\"\n\"\",\"\",\"furlong\"\n\"0\",\"k\",\"3\"\n",
       {"'furlong'"}},
      {"\"ID\",\"Kernel Name\",\"launch__grid_size\"\n\"\",\"\",\"\"\n\"0\",\"k\",\"3,1\"\n",
       {"launch__grid_size of kernel 'k'"}},
      {R"({"sm__throughput.avg.pct_of_peak_sustained_elapsed": {"type": "double"}})", {"hold no metric"}},
  };
  for (const auto& [text, needles] : cases) {
    const std::string why = refusal([&, one = text] { parse_metrics(one); });
    for (const char* needle : needles) expect_in(why, {needle});
  }
}

TEST(NcuForms, ANumberThatMayBeTwoIsSaid) {
  const auto all = parse_metrics(R"({"k": {"gpu__time_duration.sum": "117.344"}})");
  EXPECT_EQ(all[0].find(kTime), 117.344);
  ASSERT_EQ(all[0].notes.size(), 1u);
  expect_in(all[0].notes[0], {"gpu__time_duration.sum", "'117.344'", "117.344"});
  expect_in(analyze(all[0], find_target("rtx4090"))[0].text, {"'117.344'"});
  // A share, a count or any other number decides.
  for (const char* other : {R"("Achieved Occupancy": "65.770")", R"("Achieved Occupancy": "65,77")",
                            R"("launch__grid_size": "1.152")", R"("launch__grid_size": "1,152")"}) {
    const auto decided =
        parse_metrics(fmt::format(R"({{"k": {{"gpu__time_duration.sum": "117.344", {}}}}})", other));
    EXPECT_TRUE(decided[0].notes.empty()) << other;
    const bool comma = std::string_view(other).find("65,") != std::string_view::npos ||
                       std::string_view(other).find("1.152") != std::string_view::npos;
    EXPECT_EQ(decided[0].find(kTime), comma ? 117344 : 117.344) << other;
  }
}

TEST(NcuForms, StallsAreSharesOfAWarpsCycles) {
  const auto known = [](const char* text) { return known_metrics(parse_metrics(text)[0]); };
  EXPECT_NEAR(known_metrics(parse_metrics(kPage)[0]).memory_stall_share.value(), 0.625, 1e-12);
  EXPECT_EQ(known(R"({"k": {"smsp__warp_issue_stalled_memory_dependency_per_warp_active.pct": 66}})")
                .memory_stall_share,
            0.66);
  EXPECT_EQ(known(R"({"k": {"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.pct": 480,)"
                  R"("smsp__average_warp_latency_per_inst_issued.ratio": 8}})")
                .memory_stall_share,
            0.6);
  // Without the cycles of all reasons together nothing is known of the share of one.
  EXPECT_FALSE(known(R"({"k": {"launch__grid_size": 1,)"
                     R"("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 4}})")
                   .memory_stall_share);
  const auto local = known(R"({"k": {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 1000,)"
                           R"("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 500}})");
  EXPECT_EQ(local.local_loads, 1000);
  EXPECT_EQ(local.local_bytes, 48000);
}

TEST(NcuForms, NothingForeignGetsInOrCrashes) {
  std::vector<std::string> corpus;
  for (const Expected& form : forms()) corpus.push_back(form.text);
  const Target target = find_target("rtx4090");
  for_each_mutation(corpus, 5'000, [&](const std::string& text) {
    try {
      for (const KernelMetrics& metrics : parse_metrics(text))
        for (const Finding& finding : analyze(metrics, target)) EXPECT_FALSE(finding.text.empty());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    }
  });
}

TEST(NcuForms, WhatIsAskedForIsInTheTable) {
  const std::vector<std::string> command = ncu_command("ncu", {"program"});
  const std::string& metrics = *(std::find(command.begin(), command.end(), "--metrics") + 1);
  expect_in(metrics,
            {"launch__grid_size", kLongScoreboard, "smsp__average_warp_latency_per_inst_issued.ratio",
             "smsp__inst_executed_op_local_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"});
  EXPECT_EQ(metrics.find(",,"), metrics.npos);
}

}  // namespace
}  // namespace convtune::ncu_forms_test
