// A profile's JSON: read as it stands, refused with kernel and metric, and turned into findings.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "convtune/refine.h"
#include "expected_text.h"
#include "mutations.h"
#include "profile/known_metrics.h"
#include "refusal.h"

namespace convtune::metrics_test {
namespace {

const std::string kFolder = CONVTUNE_SOURCE_DIR "/tests/refine/";
const Target kAda = find_target("rtx4090");

std::string said(const std::vector<Finding>& findings, std::string_view what) {
  for (const Finding& finding : findings)
    if (finding.what == what) return finding.text;
  ADD_FAILURE() << "nothing is said of " << what;
  return {};
}

KernelMetrics kernel(std::vector<std::pair<std::string, double>> values) {
  return {"k", std::move(values)};
}

TEST(Metrics, TheSampleReadsAsItStands) {
  const auto all = load_metrics(kFolder + "metrics.json");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kernel, "conv_kernel");
  EXPECT_EQ(all[0].values.size(), 5u);
  const KnownMetrics known = known_metrics(all[0]);
  EXPECT_EQ(known.grid, 48400);
  EXPECT_DOUBLE_EQ(known.sm_share.value(), 0.6479);
  EXPECT_DOUBLE_EQ(known.achieved_occupancy.value(), 0.3305);
  EXPECT_FALSE(known.registers);
}

TEST(Metrics, RefusesWhatDoesNotBelong) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"[]", "hold no kernel"},
      {"[3]", "a launch is a number"},
      {R"([{"m": 3}])", "names no kernel"},
      {R"([{"kernel": "k", "m": {"a": 1}}])", "hold no metric"},
      {R"({"k": [[1]]})", "an array"},
      {R"({"k": [{"m": 1, "m": 2}]})", "twice"},
      {"3", "a number"},
      {"{}", "hold no kernel"},
      {R"({"k": 3})", "kernel 'k' is a number"},
      {R"({"k": {"launch__grid_size": "three"}})", "launch__grid_size of kernel 'k' is 'three'"},
      {R"({"k": {"launch__grid_size": [1]}})", "metric 'launch__grid_size' is an array"},
      {R"({"k": {"m": 1}})", "hold no metric of 'k'"},
      {R"({"k": {"launch__grid_size": null}})", "hold no metric of 'k'"},
      {R"({"k": {"m": 1, "m": 2}})", "twice"},
      {R"({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}})", "more than 8 deep"},
      {R"({"k": {}, "k": {}})", "twice"},
      {R"({"k": {"m": 1e999}})", "not JSON"},
      {R"({"k": {"m": nan}})", "not JSON at byte"},
      {R"({"k": {"m": 1})", "not JSON at byte"},
      {R"({"k": {"m": 1}} 2)", "not JSON at byte"},
      {"{\"k\": {\"m\\u001b\": 1}}", "control character"},
      {R"({"": {"m": 1}})", "0 bytes"},
      {std::string("{\"k\": {\"m\": 1}}\0x", 17), "not JSON at byte"},
  };
  for (const auto& [text, why] : cases)
    expect_in(refusal([&, json = text] { parse_metrics(json); }), {"metrics: ", why});
}

TEST(Metrics, NumbersMustBeWhatTheirMetricCanBe) {
  const auto refused = [](const char* metric, double value) {
    expect_in(refusal([&] { known_metrics(kernel({{metric, value}})); }), {metric});
  };
  refused("launch__grid_size", 0);
  refused("launch__grid_size", 1.5);
  refused("launch__registers_per_thread", -1);
  refused("launch__block_size", 2048);
  refused("sm__throughput.avg.pct_of_peak_sustained_elapsed", 400);
  refused("lts__t_sector_hit_rate.pct", -0.1);
}

TEST(Analysis, FindsTheProfiledTileFromTheGrid) {
  AnalyzeOptions options;
  options.source = load_source(kFolder + "conv.py");
  const auto findings = analyze(load_metrics(kFolder + "metrics.json")[0], kAda, options);
  expect_in(said(findings, "config"), {"48400", "BLOCK_M=32 BLOCK_N=64 BLOCK_K=32", "alexnet_conv1"});
  expect_in(said(findings, "bound"), {"64.8 %", "27.0 %", "272 of 1008 GB/s", "not bandwidth"});
  expect_in(said(findings, "occupancy"),
            {"15.9 of 48", "33.05 %", "4 blocks of 4 warps", "97 to 128 registers"});
  expect_in(said(findings, "tail"), {"94.5 waves", "no tail effect"});
  expect_in(said(findings, "cache"), {"93.4 %"});
  expect_in(said(findings, "not in the metrics"), {"sectors", "stalls", "spills", "bank conflicts"});
  expect_in(said(findings, "num_warps"),
            {"may become 8 or 16", "inferred", "33.05 %", "4 blocks of 4 warps"});
  expect_in(said(findings, "ceiling"), {"35 % at most"});
}

TEST(Metrics, LaunchesAndTablesAreProfilesToo) {
  const auto one = [](const std::string& text) {
    const auto all = parse_metrics(text);
    EXPECT_EQ(all.size(), 1u);
    return all.at(0);
  };
  const std::string times = R"([{"gpu__time_duration.sum": 9, "launch__grid_size": 1},)"
                            R"( {"gpu__time_duration.sum": 5, "launch__grid_size": 2},)"
                            R"( {"gpu__time_duration.sum": 7, "launch__grid_size": 3}])";
  EXPECT_EQ(one("{\"k\": " + times + "}").find("launch__grid_size"), 3);
  EXPECT_EQ(one(R"([{"kernel": "k", "launch__grid_size": 5, "stream": "7"}])").kernel, "k");
  EXPECT_EQ(one(R"([{"name": "k", "metrics": {"launch__grid_size": 6}}])").find("launch__grid_size"), 6);
  EXPECT_EQ(parse_metrics(load_source(kFolder + "ncu_cudnn.csv")).empty(), false);
  const std::string lines =
      "==PROF== Connected\n"
      "\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
      "\"0\",\"k\",\"a\",\"launch__grid_size\",\"\",\"48,400\"\n"
      "\"0\",\"k\",\"a\",\"gpu__time_duration.sum\",\"usecond\",\"2.5\"\n"
      "\"0\",\"k\",\"a\",\"of another section\",\"furlong\",\"x\"\n";
  EXPECT_EQ(one(lines).find("launch__grid_size"), 48400);
  EXPECT_EQ(one(lines).find("gpu__time_duration.sum"), 2500);
}

TEST(Analysis, BytesSayWhatIsReadAgain) {
  const ConvProblem problem = parse_problem("mb256ic3ih224oc96kh11sh4ph2");
  AnalyzeOptions options;
  options.problem = problem;
  const auto cache = [&](double bytes) {
    return said(analyze(kernel({{"lts__t_sector_hit_rate.pct", 1.6}, {"dram__bytes_read.sum", bytes}}), kAda,
                        options),
                "cache");
  };
  expect_in(cache(4 * problem.bytes()), {"read from memory again"});
  expect_in(cache(problem.bytes()), {"next to nothing is read again"});
  const std::string unknown = said(analyze(kernel({{"lts__t_sector_hit_rate.pct", 1.6}}), kAda), "cache");
  expect_in(unknown, {"single pass", "dram__bytes_read.sum"});
}

TEST(Analysis, IdleMultiprocessorsAndTheCeilingAreSaid) {
  const auto findings = analyze(kernel({{"launch__grid_size", 16},
                                        {"sm__warps_active.avg.pct_of_peak_sustained_active", 97.6},
                                        {"sm__throughput.avg.pct_of_peak_sustained_elapsed", 12},
                                        {"dram__throughput.avg.pct_of_peak_sustained_elapsed", 93.4}}),
                                kAda);
  expect_in(said(findings, "tail"), {"112 of 128 multiprocessors have nothing to do"});
  expect_in(said(findings, "occupancy"), {"97.6", "nothing limits it"});
  expect_in(findings[0].text, {"memory 93.4 %"});
  expect_in(said(findings, "ceiling"), {"memory at 93.4 %", "7 % at most"});
  expect_in(said(findings, "num_warps"), {"stays", "enough"});
}

TEST(Analysis, ASourceNeedsNoList) {
  AnalyzeOptions options;
  options.source =
      "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\ndef f(x):\n    k[(7,)](x, num_warps=8)\n";
  const auto findings = analyze(kernel({{"launch__grid_size", 7}}), kAda, options);
  expect_in(said(findings, "config"), {"num_warps=8 num_stages=3 (line 10)"});
  expect_in(said(findings, "num_stages"), {"does nothing", "no loop"});
  options.source = "x = 1\n";
  expect_in(said(analyze(kernel({{"launch__grid_size", 7}}), kAda, options), "config"), {"no kernel 'k'"});
}

TEST(Analysis, SaysWhatLimitsWhereTheMetricsKnow) {
  KernelMetrics metrics = load_metrics(kFolder + "metrics.json")[0];
  metrics.values.emplace_back("launch__block_size", 128);
  metrics.values.emplace_back("launch__registers_per_thread", 128);
  metrics.values.emplace_back("launch__shared_mem_per_block", 12288);
  metrics.values.emplace_back("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", 75);
  metrics.values.emplace_back("gpu__time_duration.sum", 2e6);
  AnalyzeOptions options;
  options.problem = parse_problem("mb256ic3ih224oc96kh11sh4ph2");
  const auto findings = analyze(metrics, kAda, options);
  expect_in(said(findings, "config"), {"32x64 (ceil(774400/32) x ceil(96/64))"});
  expect_in(said(findings, "bound"), {"floor on rtx4090", "it took 2000 us"});
  expect_in(said(findings, "occupancy"), {"4 blocks of 4 warps fit (33.3 %), limited by registers"});
  expect_in(said(findings, "sectors"), {"25.0 % of the bytes that loads move are wasted"});
  expect_in(said(findings, "num_warps"), {"may become 8", "limited by registers"});
}

TEST(Analysis, NothingIsNeeded) {
  for (const Finding& finding : analyze(kernel({}), kAda)) EXPECT_FALSE(finding.text.empty());
  expect_in(said(analyze(kernel({{"launch__block_size", 1024}}), kAda), "num_warps"), {"32"});
}

TEST(Metrics, NothingForeignGetsInOrCrashes) {
  const std::vector<std::string> corpus = {
      load_source(kFolder + "metrics.json"),
      R"({"a": {"launch__grid_size": 7, "launch__block_size": 256, "launch__registers_per_thread": 64,)"
      R"( "launch__shared_mem_per_block": 4096, "launch__occupancy_limit_registers": 3}, "b<int>": {}})"};
  AnalyzeOptions with_problem;
  with_problem.problem = parse_problem("mb2ic3ih224oc96kh11sh4ph2");
  for_each_mutation(corpus, 5'000, [&](const std::string& text) {
    try {
      for (const KernelMetrics& metrics : parse_metrics(text))
        for (const AnalyzeOptions& options : {AnalyzeOptions(), with_problem})
          for (const Finding& finding : analyze(metrics, kAda, options)) EXPECT_FALSE(finding.text.empty());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    }
  });
}

}  // namespace
}  // namespace convtune::metrics_test
