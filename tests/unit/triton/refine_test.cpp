// Triton sources, read by the Python that is here: what is read, what is refused with its line, that only the
// list changes.
#include "convtune/refine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "convtune/cases.h"
#include "expected_text.h"
#include "refusal.h"
#include "triton/refine_samples.h"
#include "triton/triton_file.h"

namespace convtune::refine_test {
namespace {

TEST(Refine, TheSampleGetsItsList) {
  const std::string source = sample();
  const Refined refined = refine(source, load_metrics(kFolder + "metrics.json"), kAda, plain());
  ASSERT_EQ(refined.kernels.size(), 1u);
  const RefinedKernel& kernel = refined.kernels[0];
  ASSERT_EQ(kernel.configs.size(), 5u);
  expect_in(kernel.configs[0], {"BLOCK_M=32 BLOCK_N=64 BLOCK_K=32 num_warps=4 num_stages=2: the original"});
  expect_in(kernel.configs[1], {"num_stages=3"});
  expect_in(kernel.configs[2], {"num_warps=8"});  // and no num_stages=1, which is no value of the stage
  EXPECT_EQ(kernel.verdicts.size(), 6u);
  // Only the list: what stands before and after it is the same, byte by byte.
  const auto begin = source.find("[\n        # Small"), end = source.find("    ],\n    key=");
  ASSERT_NE(begin, source.npos);
  ASSERT_NE(end, source.npos);
  EXPECT_EQ(refined.source.substr(0, begin), source.substr(0, begin));
  const std::string tail = source.substr(end);
  ASSERT_GT(refined.source.size(), tail.size());
  EXPECT_EQ(refined.source.substr(refined.source.size() - tail.size()), tail);
  // The new list by the same reader; and the same bytes every time.
  TritonFile again(refined.source, "", kAda, "python3");
  ASSERT_EQ(again.kernels().size(), 1u);
  ASSERT_EQ(again.kernels()[0].configs.size(), 5u);
  for (const TritonConfig& config : again.kernels()[0].configs)
    EXPECT_TRUE(config.same_blocks(TritonFile(source, "", kAda, "python3").kernels()[0].configs[5]));
  EXPECT_EQ(refine(source, load_metrics(kFolder + "metrics.json"), kAda, plain()).source, refined.source);
  RefineOptions twice = plain();
  twice.original = "num_stages=2 num_warps=4";
  EXPECT_EQ(refine(refined.source, profile(48400), kAda, twice).source, refined.source);
}

TEST(Refine, TheOriginalIsFoundOrNamed) {
  RefineOptions options = plain();
  options.original = "BLOCK_M=64 BLOCK_N=64 BLOCK_K=16";
  const Refined refined = refine(sample(), profile(24200), kAda, options);
  expect_in(refined.kernels[0].configs[0], {"BLOCK_K=16 num_warps=4 num_stages=3: the original"});
  options.original =
      "BLOCK_M: 64, BLOCK_N: 64, BLOCK_K: 16, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None";
  EXPECT_EQ(refine(sample(), profile(24200), kAda, options).source, refined.source);
  expect_in(refused(sample(), plain(), 24200), {"fits 3 configs", "line 28", "line 29", "--original"});
  expect_in(refused(sample(), plain(), 7), {"no config launches 7 blocks", "48400"});
  expect_in(refused(sample(), options), {"not what was profiled", "line 21"});
  options.original = "BLOCK_M=32";
  expect_in(refused(sample(), options), {"fits 4 configs"});
  options.original = "nonsense";
  expect_in(refused(sample(), options), {"nonsense"});
  // Without a layer that is a built-in case the problem must be named, or the grid's own values.
  const std::string other = with(sample(), "kernel_size=11", "kernel_size=13");
  expect_in(refused(other), {"--problem", "--original", "--let"});
  options = plain();
  options.problem = parse_problem("mb256ic3ih224oc96kh13sh4ph2");
  EXPECT_EQ(refine(other, profile(46656), kAda, options).kernels[0].configs.size(), 5u);
  options = plain();
  options.let = {{"rows", "774400"}, {"K", "96"}};
  const std::string opaque = with(other, "rows = N * P * Q", "rows = count(y)");
  EXPECT_EQ(refine(opaque, profile(48400), kAda, options).kernels[0].configs.size(), 5u);
  expect_in(refusal([&] { refine(sample(), profile(48400, "other_kernel"), kAda, plain()); }),
            {"conv_kernel", "other_kernel"});
}

TEST(Refine, AListWhereThereWasNone) {
  const std::string source =
      "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x_ptr, y_ptr, n, stride, B: "
      "tl.constexpr):\n"
      "    for i in range(0, n, B):\n        tl.store(y_ptr + i, tl.load(x_ptr + i))\n\n\ndef f(x, y, n):\n"
      "    k[(n,)](x, y, n, x.stride(0), B=64, num_warps=4,\n            num_stages=3)\n";
  const Refined refined = refine(source, profile(8, "k"), kAda, plain());
  expect_in(refined.source, {"@triton.autotune(\n    configs=[\n        # the original\n"
                             "        triton.Config({}, num_warps=4, num_stages=3),\n",
                             "    key=['n'],\n)\n@triton.jit\ndef k(", "x.stride(0), B=64)\n"});
  // If a kernel changes what it reads, the autotuner must put it back after each try.
  expect_in(refine(with(source, "tl.store(y_ptr", "tl.store(x_ptr"), profile(8, "k"), kAda, plain()).source,
            {"restore_value=['x_ptr'],"});
  const std::string computed = with(source, "num_warps=4", "num_warps=warps(n)");
  expect_in(refusal([&] { refine(computed, profile(8, "k"), kAda, plain()); }),
            {"worked out at the launch", "--original"});
  // The threads of a block that was profiled say it; of num_stages nothing does.
  std::vector<KernelMetrics> measured = profile(8, "k");
  measured[0].values.emplace_back("launch__block_size", 256);
  const Refined known = refine(computed, measured, kAda, plain());
  expect_in(known.source, {"triton.Config({}, num_warps=8, num_stages=3),\n", "x.stride(0), B=64)\n"});
  expect_in(known.kernels[0].notes[0], {"8 warps, as 256 threads", "'warps(n)'"});
  expect_in(refusal([&] { refine(with(source, "num_stages=3", "num_stages=s"), measured, kAda, plain()); }),
            {"num_stages is worked out at the launch", "--original"});
}

TEST(Refine, OneNeighbourIsAnAnswerAndNoneIsKept) {
  RefineOptions options = plain();
  options.original = "BLOCK_M=64 BLOCK_N=64 BLOCK_K=16";
  const auto source_of = [](int stages) {
    return with(sample(), "num_warps=4, num_stages=3", "num_warps=4, num_stages=" + std::to_string(stages));
  };
  std::vector<KernelMetrics> busy = profile(24200);
  busy[0].values[1].second = 80;
  Refined refined = refine(source_of(4), busy, kAda, options);
  EXPECT_EQ(refined.kernels[0].configs.size(), 2u);
  expect_in(refined.kernels[0].verdicts[3], {"R4: 2 configs, where the stage wants 3 to 6"});
  const std::string source = source_of(6);
  refined = refine(source, busy, kAda, options);
  EXPECT_EQ(refined.source, source);
  EXPECT_TRUE(refined.kernels[0].configs.empty());
  expect_in(refined.kernels[0].verdicts[3], {"R4: keep: 1 nearby config is"});
  options.only_original = true;
  refined = refine(source, busy, kAda, options);
  EXPECT_EQ(TritonFile(refined.source, "", kAda, "python3").kernels()[0].configs.size(), 1u);
  // One config is never tried out; several run a kernel that adds in place more than once.
  const std::string adds =
      "import triton\nimport triton.language as tl\n\n\n@triton.autotune([triton.Config({}, num_stages=3)], "
      "key=[])\n"
      "@triton.jit\ndef k(x):\n    for i in range(4):\n        tl.atomic_add(x + i, 1)\n";
  refined = refine(adds, profile(1, "k"), kAda, plain());
  EXPECT_EQ(refined.source, adds);
  expect_in(refined.kernels[0].verdicts[3], {"changes in place", "reset_to_zero"});
}

TEST(Refine, AnOldListMayStay) {
  RefineOptions options = plain();
  options.keep_list = true;
  const std::string source = sample();
  const Refined refined = refine(source, profile(48400), kAda, options);
  TritonFile file(refined.source, "", kAda, "python3");
  EXPECT_EQ(file.kernels()[0].configs.size(), 9u + 4u);
  EXPECT_EQ(refined.source.substr(0, source.find("num_stages=3),\n    ],")),
            source.substr(0, source.find("num_stages=3),\n    ],")));
}

TEST(Refine, PutsTheFileInOrderWhenAsked) {
  const std::string source = load_source(kFolder + "matmul_lambda.py");
  RefineOptions options = plain();
  options.problem = parse_problem("mb1ic64ih56oc256kh1 bias=0");
  EXPECT_EQ(refine(source, profile(196, "pointwise"), kAda, options).source.find("def wrapper"),
            source.find("def wrapper"));
  options.in_order = true;
  const Refined refined = refine(source, profile(196, "pointwise"), kAda, options);
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
  // Whatever the kernel's decorator calls stands before it, whatever the order asks.
  const std::string pruned =
      "import triton\n\n\ndef keep(configs, args):\n    return "
      "configs\n\n\n@triton.autotune([triton.Config({}, num_stages=3)], "
      "key=[], prune_configs_by={'early_config_prune': keep})\n@triton.jit\ndef k(x):\n    for i in "
      "range(4):\n        pass\n";
  options = plain();
  options.in_order = true;
  const std::string kept = refine(pruned, profile(1, "k"), kAda, options).source;
  EXPECT_LT(kept.find("def keep"), kept.find("@triton.autotune"));
}

TEST(Refine, RefusesWithTheLine) {
  const std::string source = sample();
  expect_in(refused(with(source, "    y = torch.empty(", "  y = torch.empty(")),
            {"line 69: this is no Python"});
  expect_in(refused(with(source, "key=['rows', 'channels'],", "key=['rows', 'channels',")),
            {"this is no Python"});
  expect_in(refused("x = 1\n"), {"line 1", "no kernel"});
  expect_in(refused(""), {"no kernel"});
  expect_in(refused(std::string("x = 1\0", 6)), {"zero byte"});
  expect_in(refused("x = '\xff'\n"), {"no UTF-8"});
  expect_in(refused(with(source, "@triton.jit\n", "")), {"no @triton.jit"});
  RefineOptions options = plain();
  options.python = "no_such_python";
  try {
    refine(source, profile(48400), kAda, options);
    ADD_FAILURE() << "read by no Python";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    expect_in(error.what(), {"no_such_python", "--python"});
  }
}

TEST(Refine, GridsOfWrappersOfSeveralKinds) {
  const TritonGiven given{find_problem("alexnet_conv1"), {}};
  const auto blocks = [&](const std::string& source) {
    TritonFile file(source, "", kAda, "python3");
    std::string why;
    const auto grids = file.grids(file.kernels().at(0), given, why);
    EXPECT_EQ(grids.size(), 1u) << why;
    return grids.size() == 1 && grids[0].size() == 9 ? grids[0][5].blocks : -1;
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
  EXPECT_EQ(blocks(replaced("    def grid(m):\n        a = m['BLOCK_M']\n        return (rows // a,)\n")),
            24200);
  EXPECT_EQ(blocks(replaced("    if K > 3:\n        rows = rows\n    grid = (rows // 64, max(K, 2))\n")),
            12100 * 96);
  EXPECT_EQ(blocks(with(source, "conv_kernel[grid]", "conv_kernel[lambda META: (META['BLOCK_N'], K)]")),
            64 * 96);
}

TEST(Refine, ManyConfigsAreReadAtOnce) {
  std::string list;
  for (int i = 0; i < 4500; ++i) list += fmt::format("    triton.Config({{'B': {}}}, num_stages=3),\n", i);
  const std::string source = "import triton\n\n\n@triton.autotune([\n" + list +
                             "], key=[])\n@triton.jit\ndef k(B):\n    "
                             "for i in range(4):\n        pass\n";
  RefineOptions options = plain();
  options.original = "B=4321";
  EXPECT_EQ(refine(source, profile(1, "k"), kAda, options).kernels[0].configs.size(), 6u);
}

}  // namespace
}  // namespace convtune::refine_test
