// Triton sources, read by the Python that is here: what is read, what is refused with its line, that only the
// list changes.
#include "convtune/refine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "convtune/cases.h"
#include "expected_text.h"
#include "refusal.h"
#include "triton/triton_file.h"

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
// Without Triton, which may be there or not.
RefineOptions plain() {
  RefineOptions options;
  options.compile = options.import_file = false;
  return options;
}
std::string refused(const std::string& source, const RefineOptions& options = plain(), double grid = 48400) {
  return refusal([&] { refine(source, profile(grid), kAda, options); });
}

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
  expect_in(refused(sample(), plain(), 24200), {"fits 2 configs", "line 28", "line 29", "--original"});
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
  options.problem = parse_problem("mb256ic3ih224oc96kh11sh4ph2");
  EXPECT_EQ(refine(other, profile(48400), kAda, options).kernels[0].configs.size(), 5u);
  options = plain();
  options.let = {{"rows", 774400}, {"K", 96}};
  const std::string opaque = with(other, "rows = N * P * Q", "rows = count(y)");
  EXPECT_EQ(refine(opaque, profile(48400), kAda, options).kernels[0].configs.size(), 5u);
  expect_in(refusal([&] { refine(sample(), profile(48400, "other_kernel"), kAda, plain()); }),
            {"conv_kernel", "other_kernel"});
}

// Every form of a list that stands in public files; each is replaced, and no other byte.
TEST(Refine, EveryFormOfAList) {
  const std::string list =
      "[triton.Config({'B': b}, num_warps=w, num_stages=3) for b in (32, 64) for w in (4, 8)]";
  const auto file = [](const std::string& before, const std::string& configs, const std::string& after = "") {
    return "import triton\nimport triton.language as tl\n\n" + before +
           "\n\n@triton.autotune(configs=" + configs +
           ", key=['n'])\n@triton.jit\ndef k(x, n, B: tl.constexpr):\n    for i in range(n):\n        "
           "tl.store(x + i, tl.load(x + i) + 1)\n\n\n" +
           after;
  };
  const std::pair<const char*, std::string> forms[] = {
      {"a comprehension", file("", list)},
      {"a function",
       file("def make(stages=3):\n    found = []\n    for b in [32, 64]:\n        for w in [4, 8]:\n"
            "            found.append(triton.Config({'B': b}, num_warps=w, num_stages=stages))\n"
            "    return found\n",
            "make()")},
      {"a name", file("CONFIGS = " + list + "\n", "CONFIGS")},
      {"filter",
       file("CONFIGS = " + list + "\n\n\ndef keep(conf):\n    return conf.kwargs['B'] * conf.num_warps > 0\n",
            "list(filter(keep, CONFIGS))")},
      {"a sum", file("A = " + list + "\nB = [triton.Config({'B': 128}, num_stages=3)]\n", "A + B")},
      {"a condition",
       file("def is_cuda():\n    return triton.runtime.driver.active.get_current_target().backend == "
            "'cuda'\n\n\nA = " +
                list + "\n",
            "A if is_cuda() else []")},
      {"a star", file("A = " + list + "\n", "[*A, triton.Config({'B': 128}, num_stages=3)]")},
      {"a platform at the top",
       file("if triton.runtime.driver.active.get_current_target().backend == 'hip':\n"
            "    A = []\nelse:\n    A = " +
                list + "\n",
            "A")},
      {"what a block may hold, by an enumeration and what it lacks",
       file("from enum import Enum\nimport torch\n\n\nclass Backend(Enum):\n    ADA = 101376\n    DEFAULT = "
            "102400\n\n"
            "    @classmethod\n    def of(cls, arch):\n        try:\n            return "
            "cls[arch.upper()].value\n"
            "        except KeyError:\n            return cls.DEFAULT.value\n\n\ndef fits(arch, at=0):\n    "
            "try:\n"
            "        sizes = [triton.runtime.driver.active.utils.get_device_properties(i)['max_shared_mem']\n"
            "                 for i in range(torch.cuda.device_count())]\n        return sizes[at] >= "
            "Backend.of(arch)\n"
            "    except Exception:\n        return False\n\n\n"
            "A = " +
                list + "\n",
            "A if fits('ada') and not fits('none') and not fits('ada', 1) else []")},
      {"a choice for runs that must repeat",
       file("import torch\n\n\ndef cost(config):\n    return getattr(config, 'num_stages', 1) * "
            "config.kwargs['B']\n\n\n"
            "def chosen(configs):\n    if not torch.are_deterministic_algorithms_enabled():\n"
            "        return sorted(configs, key=cost)\n    return [min(configs, key=cost)]\n",
            "chosen(" + list + ")")},
  };
  RefineOptions options = plain();
  options.original = "B=64 num_warps=8";
  for (const auto& [what, text] : forms) {
    SCOPED_TRACE(what);
    const auto begin = text.rfind("configs=") + 8, end = text.rfind(", key=['n']");
    const Refined refined = refine(text, profile(48400, "k"), kAda, options);
    ASSERT_EQ(refined.kernels[0].configs.size(), 6u) << refined.source;
    EXPECT_EQ(refined.source.substr(0, begin), text.substr(0, begin));
    EXPECT_EQ(refined.source.substr(refined.source.size() - (text.size() - end)), text.substr(end));
  }
  // A branch that may be taken is no guard where it returns a list.
  const std::string either =
      file("import elsewhere\n\n\ndef make():\n    if elsewhere.flag:\n        return []\n    return " +
               list + "\n",
           "make()");
  expect_in(refused(with(either, "def k(", "def conv_kernel(")),
            {"list of configs is not known", "elsewhere.flag"});
  // What is not known is replaced by a whole --original, and refused without one.
  const std::string unknown = file("from elsewhere import configs\n", "configs");
  options.original = "B: 64, num_warps: 8, num_stages: 3, MODE: fast, T: tl.int8, EVEN: True";
  expect_in(
      refine(unknown, profile(48400, "k"), kAda, options).source,
      {"triton.Config({'B': 64, 'MODE': 'fast', 'T': tl.int8, 'EVEN': True}, num_warps=16, num_stages=3)"});
  expect_in(refused(with(unknown, "def k(", "def conv_kernel(")),
            {"list of configs is not known", "--original"});
}

// What another file holds is written by the name that it has here.
TEST(Refine, HooksOfAnotherFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "convtune_refine_hooks";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "hooks.py") << "def fresh(name):\n    return lambda nargs: nargs[name].zero_()\n\n\n"
                                        "def count(nargs):\n    pass\n";
  const std::string source =
      "import triton\nimport triton.language as tl\nfrom hooks import count, fresh as zeroed\n\n\n"
      "@triton.autotune(configs=[triton.Config({'B': b}, num_stages=3, pre_hook=hook)\n"
      "                          for b, hook in ((32, count), (64, zeroed('x')))], key=['n'])\n"
      "@triton.jit\ndef k(x, n, B: tl.constexpr):\n    for i in range(n):\n        tl.store(x + i, i)\n";
  RefineOptions options = plain();
  options.path = (folder / "kernel.py").string();
  for (const auto& [original, hook] :
       {std::pair("B=32", "pre_hook=count)"), std::pair("B=64", "pre_hook=zeroed('x'))")}) {
    options.original = original;
    expect_in(refine(source, profile(48400, "k"), kAda, options).source, {hook});
  }
  std::filesystem::remove_all(folder);
}

TEST(Refine, ValuesAreCarriedAsText) {
  const std::string source =
      "import torch\nimport triton\nimport triton.language as tl\nSIZE = 32\n\n\ndef hook(args):\n    "
      "pass\n\n\n"
      "def make():\n    inner = hook\n    return [triton.Config({'B': SIZE * 2, 'T': torch.int8, 'M': "
      "'fast', "
      "'E': True}, num_stages=3, pre_hook=inner, num_ctas=1)]\n\n\n"
      "@triton.autotune(make(), key=[])\n@triton.jit\ndef k(x, B, T, M, E):\n    for i in range(4):\n        "
      "pass\n";
  const Refined refined = refine(source, profile(1, "k"), kAda, plain());
  expect_in(refined.source, {"{'B': 64, 'T': torch.int8, 'M': 'fast', 'E': True}, num_warps=8, num_stages=4, "
                             "pre_hook=hook, num_ctas=1)"});
  // A name that is not seen where the list stands cannot be carried.
  const std::string local = with(source, "inner = hook", "def inner(args):\n        pass\n");
  expect_in(refusal([&] { refine(local, profile(1, "k"), kAda, plain()); }),
            {"pre_hook is inner", "not seen"});
}

TEST(Refine, KernelsWhereverTheyStand) {
  const std::string kernel = "triton.autotune([triton.Config({'B': 32}, num_stages=3)], key=[])";
  const std::string body = "(x, B: tl.constexpr):\n    for i in range(4):\n        tl.store(x, i)\n";
  const std::string source =
      "import triton\nimport triton.language as tl\n\n\n@" + kernel + "\n@triton.jit\ndef one" + body +
      "\n\n@triton.jit\ndef two" + body + "\n\ntuned = " + kernel + "(two)\n\n\nif tl:\n    @" + kernel +
      "\n    @triton.heuristics({})\n    @triton.jit\n    def three(x, B: tl.constexpr):\n"
      "        while True:\n            pass\n";
  for (const char* name : {"one", "two", "three"}) {
    const Refined refined = refine(source, profile(1, name), kAda, plain());
    ASSERT_EQ(refined.kernels.size(), 1u);
    EXPECT_EQ(refined.kernels[0].kernel, name);
    EXPECT_EQ(refined.kernels[0].configs.size(), 6u) << name;
  }
  // A list that is made in the branch that tunes, where alone triton is imported.
  const std::string branch =
      "import kernels\n\n\nclass Layer:\n    def __init__(self, tuned):\n        if tuned:\n            "
      "import triton\n"
      "            configs = [triton.Config({'B': b}, num_stages=3) for b in (32, 64)]\n            "
      "kernels.four = "
      "triton.autotune(configs=configs, key=['n'])(kernels.four)\n";
  RefineOptions named = plain();
  named.original = "B=64";
  EXPECT_EQ(refine(branch, profile(1, "four"), kAda, named).kernels[0].configs.size(), 6u);
  // All that the metrics name; and the one that is named.
  std::vector<KernelMetrics> both = profile(1, "one");
  both.push_back({"three", both[0].values});
  EXPECT_EQ(refine(source, both, kAda, plain()).kernels.size(), 2u);
  RefineOptions options = plain();
  options.kernel = "two";
  EXPECT_EQ(refine(source, {}, kAda, options).kernels.size(), 1u);
  options.kernel = "four";
  expect_in(refusal([&] { refine(source, {}, kAda, options); }), {"--kernel 'four'", "'one:5'", "'three:"});
  expect_in(refusal([&] { refine(source, {}, kAda, plain()); }), {"3 kernels are meant", "--kernel"});
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
  // Where a kernel changes what it reads, the autotuner must put it back after each try.
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

TEST(Refine, FewerThanThreeAreKept) {
  RefineOptions options = plain();
  options.original = "BLOCK_M=64 BLOCK_N=64 BLOCK_K=16";
  const std::string source = with(sample(), "num_warps=4, num_stages=3", "num_warps=4, num_stages=4");
  std::vector<KernelMetrics> busy = profile(24200);
  busy[0].values[1].second = 80;
  Refined refined = refine(source, busy, kAda, options);
  EXPECT_EQ(refined.source, source);
  EXPECT_TRUE(refined.kernels[0].configs.empty());
  expect_in(refined.kernels[0].verdicts[3], {"R4: keep: 2 nearby configs"});
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
  // What the kernel's decorator calls stands before it, whatever the order asks.
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
    EXPECT_EQ(grids.size(), 9u) << why;
    return grids.size() == 9 ? grids[5] : -1;
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
}  // namespace convtune
