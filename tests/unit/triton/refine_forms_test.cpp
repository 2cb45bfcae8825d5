// Lists of configs and kernels in every form that they have in public files: what is read of them, and that
// the list alone is replaced.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "convtune/refine.h"
#include "expected_text.h"
#include "refusal.h"
#include "triton/refine_samples.h"

namespace convtune::refine_forms_test {
namespace {

// Every form of a list that stands in public files; each is replaced, and no other byte.
TEST(RefineForms, EveryFormOfAList) {
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
  // Whatever is not known is replaced by a whole --original, and refused without one.
  const std::string unknown = file("from elsewhere import configs\n", "configs");
  options.original = "B: 64, num_warps: 8, num_stages: 3, MODE: fast, T: tl.int8, EVEN: True";
  expect_in(
      refine(unknown, profile(48400, "k"), kAda, options).source,
      {"triton.Config({'B': 64, 'MODE': 'fast', 'T': tl.int8, 'EVEN': True}, num_warps=16, num_stages=3)"});
  expect_in(refused(with(unknown, "def k(", "def conv_kernel(")),
            {"list of configs is not known", "--original"});
}

// Whatever another file holds is written by the name that it has here.
TEST(RefineForms, HooksOfAnotherFile) {
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

TEST(RefineForms, ValuesAreCarriedAsText) {
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

TEST(RefineForms, KernelsWhereverTheyStand) {
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

}  // namespace
}  // namespace convtune::refine_forms_test
