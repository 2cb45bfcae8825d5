// Triton sources: what is read, what is refused with its line, and that only the list changes.
#include "convtune/refine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "convtune/cases.h"
#include "mutations.h"
#include "refusal.h"
#include "triton_grid.h"
#include "triton_run.h"

namespace convtune {
namespace {

const std::string kFolder = CONVTUNE_SOURCE_DIR "/tests/refine/";
const Target kAda = find_target("rtx4090");

std::string sample() {
  return load_source(kFolder + "conv.py");
}
std::vector<KernelMetrics> profile(double grid, const std::string& kernel = "conv_kernel") {
  return {
      {kernel, {{"launch__grid_size", grid}, {"sm__warps_active.avg.pct_of_peak_sustained_active", 33.05}}}};
}
std::string with(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return at == text.npos ? text : text.replace(at, from.size(), to);
}
std::string refused(const std::string& source, const RefineOptions& options = {}, double grid = 48400) {
  return refusal([&] { refine(source, profile(grid), kAda, options); });
}
void expect_in(const std::string& text, std::initializer_list<const char*> needles) {
  for (const char* needle : needles)
    EXPECT_NE(text.find(needle), text.npos) << "no '" << needle << "' in: " << text;
}

TEST(Refine, TheSampleGetsThreeConfigs) {
  const std::string source = sample();
  const Refined refined = refine(source, load_metrics(kFolder + "metrics.json"), kAda);
  ASSERT_EQ(refined.configs.size(), 3u);
  expect_in(refined.configs[0], {"BLOCK_M=32 BLOCK_N=64 BLOCK_K=32 num_warps=4 num_stages=2: the original"});
  expect_in(refined.configs[1], {"num_stages=3"});
  expect_in(refined.configs[2], {"num_stages=1"});
  EXPECT_EQ(refined.verdicts.size(), 6u);
  // Only the list: what stands before and after it is the same, byte by byte.
  const auto begin = source.find("[\n        # Small"), end = source.find("    ],\n    key=");
  ASSERT_NE(begin, source.npos);
  ASSERT_NE(end, source.npos);
  EXPECT_EQ(refined.source.substr(0, begin), source.substr(0, begin));
  const std::string tail = source.substr(end);
  ASSERT_GT(refined.source.size(), tail.size());
  EXPECT_EQ(refined.source.substr(refined.source.size() - tail.size()), tail);
  // The new list by the same reader; and the same bytes every time.
  const TritonSource again(refined.source);
  ASSERT_EQ(again.configs().size(), 3u);
  for (const TritonConfig& config : again.configs())
    EXPECT_TRUE(config.same_blocks(TritonSource(source).configs()[5])) << to_string(config);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(refine(source, load_metrics(kFolder + "metrics.json"), kAda).source, refined.source);
}

TEST(Refine, RefiningTwiceChangesNothing) {
  const Refined once = refine(sample(), profile(48400), kAda);
  RefineOptions options;
  options.original = "num_stages=2";
  EXPECT_EQ(refine(once.source, profile(48400), kAda, options).source, once.source);
}

TEST(Refine, LimitedByRegistersMoreWarpsAreTried) {
  auto metrics = profile(48400);
  metrics[0].values.emplace_back("launch__registers_per_thread", 128);
  const Refined refined = refine(sample(), metrics, kAda);
  EXPECT_EQ(refined.configs.size(), 5u);  // 4/2 4/3 4/1, and 8/2 8/3; 8/1 is neither listed nor of the stage
  expect_in(refined.configs[3], {"num_warps=8 num_stages=2"});
}

TEST(Refine, TheOriginalIsFoundOrNamed) {
  RefineOptions options;
  options.original = "BLOCK_M=64 BLOCK_N=64 BLOCK_K=16";
  const Refined refined = refine(sample(), profile(24200), kAda, options);
  expect_in(refined.configs[0], {"BLOCK_K=16 num_warps=4 num_stages=3: the original"});
  expect_in(refused(sample(), {}, 24200), {"fits 2 configs", "line 28", "line 29", "--original"});
  expect_in(refused(sample(), {}, 7), {"no config launches 7 blocks", "48400"});
  expect_in(refused(sample(), options), {"not what was profiled", "line 21"});
  options.original = "BLOCK_M=32";
  expect_in(refused(sample(), options), {"fits 4 configs"});
  options.original = "nonsense";
  expect_in(refused(sample(), options), {"nonsense"});
  // Without a layer that is a built-in case the problem must be named.
  const std::string other = with(sample(), "kernel_size=11", "kernel_size=13");
  expect_in(refused(other), {"--problem", "--original"});
  options.original.clear();
  options.problem = parse_problem("mb256ic3ih224oc96kh11sh4ph2");
  EXPECT_EQ(refine(other, profile(48400), kAda, options).configs.size(), 3u);
  expect_in(refusal([&] { refine(sample(), profile(48400, "other_kernel"), kAda); }),
            {"conv_kernel", "other_kernel"});
}

TEST(Refine, PutsTheFileInOrder) {
  const std::string source = load_source(kFolder + "matmul_lambda.py");
  RefineOptions options;
  options.problem = parse_problem("mb1ic64ih56oc256kh1 bias=0");
  const Refined refined = refine(source, profile(196, "pointwise"), kAda, options);
  ASSERT_EQ(refined.configs.size(), 3u);
  const auto at = [&](const char* text) {
    const auto place = refined.source.find(text);
    EXPECT_NE(place, refined.source.npos) << text;
    return place;
  };
  const char* const order[] = {"\"\"\"A file",    "import torch\n",   "import torch.nn as nn\n",
                               "import triton\n", "import triton.la", "BLOCK_K = 32",
                               "# one by one",    "@triton.autotune", "def pointwise",
                               "def wrapper",     "class ModelNew"};
  for (std::size_t i = 1; i < std::size(order); ++i) EXPECT_LT(at(order[i - 1]), at(order[i])) << order[i];
  EXPECT_EQ(refined.source.find("get_inputs"), refined.source.npos);
  EXPECT_EQ(refined.source.find("__main__"), refined.source.npos);
  expect_in(refined.source, {"'EVEN': True", "num_ctas=1", "num_warps=8", "key=[\"rows\"]"});
  std::string notes;
  for (const std::string& note : refined.notes) notes += note + "\n";
  expect_in(notes, {"line 38", "line 42", "order is now"});
}

TEST(Refine, RefusesWithTheLine) {
  const std::string source = sample();
  static const char* const kThere = "the line of what was changed";
  const std::tuple<std::string, std::string, std::vector<const char*>> cases[] = {
      {"'BLOCK_K': 16}", "'BLOCK_K': SIZE}", {kThere, "not a literal"}},
      {"num_warps=4, num_stages=3", "num_warps=2 * 2, num_stages=3", {kThere, "num_warps"}},
      {"num_warps=4, num_stages=3", "4, 3", {kThere, "has no name"}},
      {"num_warps=4, num_stages=3", "num_stages=2, num_stages=3", {kThere, "twice"}},
      {"configs=[", "configs=make_configs() + [", {kThere, "computed"}},
      {"        # Small tiles\n", "        *others,\n", {kThere, "is not one"}},
      {"num_stages=3),\n    ],", "num_stages=3) for _ in range(2)\n    ],", {kThere, "is not one"}},
      {"@triton.autotune(", "@triton.heuristics(", {kThere, "no @triton.autotune"}},
      {"@triton.jit",
       "@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=[])\n@triton.jit",
       {kThere, "second"}},
      {"def conv(",
       "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef other():\n    return 0\n\n\ndef conv(",
       {"second autotuned kernel", "'other'"}},
      {"@triton.jit\n", "", {"no @triton.jit"}},
      {"    y = torch.empty(", "  y = torch.empty(", {kThere, "indentation"}},
      {"key=['rows', 'channels'],", "key=['rows', 'channels',", {"closes"}},
      {"    return y\n", "    return y\n\n\nprint('hello')\n", {"order"}},
      {"class ModelNew", "LATE = 3\n\n\nclass ModelNew", {"constant"}},
      {"{'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 16}", "dict(BLOCK_M=64)", {kThere, "literal dict"}},
      {"'BLOCK_K': 16}", "'BLOCK_M': 16}", {kThere, "twice"}},
      {"'BLOCK_K': 16}", "'it is': 16}", {kThere, "no parameter's name"}},
      {"{'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 16}, num_warps=4, num_stages=3",
       "{'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=2",
       {kThere, "again"}},
      {"conv_kernel[grid](", "conv_kernel[make(x)](", {"grid cannot be worked out"}},
      {"rows = N * P * Q", "rows = count(x)", {"'rows'", "not known"}},
  };
  for (const auto& [from, to, needles] : cases) {
    const auto line =
        1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(source.find(from)), '\n');
    for (const char* const needle : needles)
      expect_in(refused(with(source, from, to)),
                {needle == kThere ? fmt::format("line {}: ", line).c_str() : needle});
  }
  expect_in(refused("x = 1\n"), {"line 1", "no kernel"});
  expect_in(refused(""), {"no kernel"});
}

TEST(Refine, TooFewNeighboursWriteNothing) {
  RefineOptions options;
  options.original = "BLOCK_M=64 BLOCK_N=64 BLOCK_K=16";
  const std::string source = with(sample(), "num_warps=4, num_stages=3", "num_warps=4, num_stages=4");
  const Refined refined = refine(source, profile(24200), kAda, options);
  EXPECT_TRUE(refined.source.empty());
  expect_in(refined.verdicts[3], {"R4: no list"});
}

TEST(TritonGrid, FollowsWrappersOfSeveralKinds) {
  const Conv2dProblem problem = find_problem("alexnet_conv1");
  const auto blocks = [&](const std::string& source) {
    const TritonSource parsed(source);
    const TritonGrid grid = grid_of(parsed, parsed.configs()[5], problem);
    EXPECT_TRUE(grid.blocks) << grid.why_not;
    return grid.blocks.value_or(-1);
  };
  const std::string source = sample();
  EXPECT_EQ(blocks(source), 48400);
  const auto from = source.find("    def grid(meta)"), to = source.find("    conv_kernel[grid]");
  const auto replaced = [&](const std::string& grid) {
    return source.substr(0, from) + grid + source.substr(to);
  };
  EXPECT_EQ(blocks(replaced(
                "    grid = lambda m: (triton.cdiv(rows, m['BLOCK_M']), triton.cdiv(K, m['BLOCK_N']))\n")),
            48400);
  EXPECT_EQ(
      blocks(replaced("    def grid(m): return (-(-1) * (rows + m['BLOCK_M'] - 1) // m['BLOCK_M'], 2)\n")),
      48400);
  EXPECT_EQ(blocks(replaced("    def grid(m):\n        a = m['BLOCK_M']\n        return (rows // a,)\n")),
            24200);
  EXPECT_EQ(blocks(replaced("    if K > 3:\n        rows = rows\n    grid = (rows // 64, max(K, 2))\n")),
            12100 * 96);
  EXPECT_EQ(blocks(with(source, "conv_kernel[grid]", "conv_kernel[lambda META: (META['BLOCK_N'], K)]")),
            64 * 96);
}

TEST(Refine, AFileMayKeepItsList) {
  std::vector<std::string> notes;
  EXPECT_EQ(TritonSource(sample()).in_order(notes), sample());
  EXPECT_TRUE(notes.empty());
  const std::string other = load_source(kFolder + "matmul_lambda.py");
  const std::string ordered = TritonSource(other).in_order(notes);
  EXPECT_EQ(TritonSource(ordered).configs().size(), TritonSource(other).configs().size());
  EXPECT_EQ(ordered.find("get_inputs"), ordered.npos);
  EXPECT_FALSE(notes.empty());
}

TEST(Refine, OutputsAreComparedUpToRounding) {
  const TritonOutput original = {{2, 3}, "float32", true, 5, 1.0, 100, {10, -3}, {1, -1, 0}};
  TritonOutput other = original;
  other.bits = 6, other.values[0] = 1.0001, other.sums[1] = -3.0009;
  EXPECT_EQ(difference(original, other), "");
  other.values[2] = 2e-4;
  expect_in(difference(original, other), {"an output is 0.0002 and the original's 0"});
  other = original, other.sums[0] = 10.01;  // one output of a hundred, nowhere near the others
  expect_in(difference(original, other), {"100 outputs have the sum 10.01 and the original's 10"});
  other = original, other.shape = {3, 2};
  expect_in(difference(original, other), {"another shape"});
  other = original, other.finite = false;
  expect_in(difference(original, other), {"no finite number"});
  other = original, other.values.pop_back();
  expect_in(difference(original, other), {"another form"});
  other = original, other.values[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(difference(original, other), "");
}

// Whatever the file holds: the file again with three to six configs, or Error{invalid_argument}.
TEST(Refine, NothingForeignCrashes) {
  const std::vector<std::string> corpus = {sample(), load_source(kFolder + "matmul_lambda.py")};
  RefineOptions options;
  options.original = "num_stages=2 BLOCK_M=32 BLOCK_N=64";
  std::size_t refined_files = 0;
  for_each_mutation(corpus, 3'000, [&](const std::string& text) {
    try {
      const std::string kernel = TritonSource(text).kernel();
      const Refined refined = refine(text, profile(48400, kernel), kAda, options);
      if (refined.source.empty()) return;
      ++refined_files;
      EXPECT_GE(refined.configs.size(), 3u);
      EXPECT_LE(refined.configs.size(), 6u);
      EXPECT_EQ(TritonSource(refined.source).configs().size(), refined.configs.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    }
  });
  EXPECT_GT(refined_files, 10u);
}

}  // namespace
}  // namespace convtune
