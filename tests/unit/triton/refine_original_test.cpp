// Which config was profiled: by grids that follow from the file's model, by what somebody says of it, by the
// warps that were active.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "convtune/refine.h"
#include "expected_text.h"
#include "refusal.h"
#include "triton/refine_samples.h"

namespace convtune::refine_original_test {
namespace {

using Let = std::vector<std::pair<std::string, std::string>>;

// A kernel of three tiles; `rest`: the wrapper and the model.
std::string source_of(const std::string& rest) {
  return "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as "
         "tl\n\n\n@triton.autotune(\n"
         "    configs=[\n"
         "        triton.Config({'M': 64, 'N': 32}, num_warps=4, num_stages=2),\n"   // line 9
         "        triton.Config({'M': 32, 'N': 64}, num_warps=4, num_stages=3),\n"   // line 10
         "        triton.Config({'M': 128, 'N': 64}, num_warps=8, num_stages=3),\n"  // line 11
         "    ],\n    key=['rows'],\n)\n@triton.jit\ndef k(x_ptr, y_ptr, rows, columns, M: tl.constexpr, N: "
         "tl.constexpr):\n    for i in range(rows):\n        tl.store(y_ptr + i, tl.load(x_ptr + i))\n\n\n" +
         rest;
}

const char* const kWrapper =
    "def run(x, weight):\n    rows, inner = x.shape\n    columns = weight.shape[0]\n    y = "
    "torch.empty((rows, columns), "
    "device=x.device)\n    grid = lambda meta: (triton.cdiv(rows, meta['M']), triton.cdiv(columns, "
    "meta['N']))\n"
    "    k[grid](x, y, rows, columns)\n    return y\n\n\n";

RefinedKernel kernel_of(const std::string& source, double grid, const Let& let = {},
                        const std::optional<ConvProblem>& problem = {}, double active = 5) {
  RefineOptions options = plain();
  options.several = RefineOptions::Several::keep;
  options.let = let, options.problem = problem;
  const std::vector<KernelMetrics> metrics = {
      {"k", {{"launch__grid_size", grid}, {"sm__warps_active.avg.pct_of_peak_sustained_active", active}}}};
  return refine(source, metrics, kAda, options).kernels.at(0);
}

TEST(RefineOriginal, TheModelsParametersGiveTheGrid) {
  const std::string source =
      source_of(std::string(kWrapper) +
                "class ModelNew(nn.Module):\n    def __init__(self, features, outputs, bias=True):\n        "
                "super().__init__()\n        self.linear = nn.Linear(features, outputs, bias=bias)\n\n    "
                "def forward(self, "
                "x):\n        return run(torch.relu(x.view(-1, x.size(-1))), self.linear.weight)\n");
  const Let all = {{"features", "100"}, {"outputs", "600"}, {"x", "[2, 500, 100]"}};
  expect_in(kernel_of(source, 320, all).original, {"M=32 N=64"});
  expect_in(kernel_of(source, 80, all).original, {"M=128 N=64"});
  // Too little is known: a factor tells some apart, and what would tell more is said.
  const RefinedKernel half = kernel_of(source, 30, {{"features", "100"}, {"outputs", "600"}});
  EXPECT_EQ(half.original, "");
  expect_in(half.unknown,
            {"keep: which config of 'k'", "a factor", "--original", "--let", "line 10", "line 11"});
  EXPECT_EQ(half.unknown.find("line 9"), half.unknown.npos) << "600 / 32 does not divide 30";
  // A shape of another rank leads nowhere, and nothing is guessed.
  EXPECT_EQ(kernel_of(source, 320, {{"x", "[512]"}}).original, "");
}

TEST(RefineOriginal, ANameOfTheModelIsNoOtherFunctions) {
  // The wrapper's `x` is what the pooling makes, and not the model's.
  const std::string source =
      source_of(std::string(kWrapper) +
                "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        "
                "self.weight = "
                "nn.Parameter(torch.randn(640, 100))\n\n    def forward(self, x):\n        return "
                "run(torch.unknown_function(x), self.weight)\n");
  const RefinedKernel kernel = kernel_of(source, 320, {{"x", "[1024, 100]"}});
  EXPECT_EQ(kernel.original, "");
  expect_in(kernel.unknown, {"a factor"});
}

TEST(RefineOriginal, EveryLaunchCounts) {
  const std::string source =
      source_of(std::string(kWrapper) +
                "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        "
                "self.layers = "
                "nn.ModuleList([nn.Linear(100, 600), nn.Linear(600, 1280)])\n\n    def forward(self, x):\n   "
                "     for layer in "
                "self.layers:\n            x = run(x, layer.weight)\n        return x\n");
  const Let let = {{"x", "[1024, 100]"}};
  // Blocks of the first and of the second: 304 and 640, 320 and 640, 80 and 160.
  expect_in(kernel_of(source, 160, let).original, {"M=128"});
  expect_in(kernel_of(source, 304, let).original, {"M=64"});
  EXPECT_EQ(kernel_of(source, 640, let).original, "");
  const std::string chained =
      with(with(source, "for layer in self.layers:", "for layer in [self.layers[0], self.layers[-1]]:"),
           "nn.ModuleList([", "nn.Sequential(*[");
  expect_in(kernel_of(chained, 160, let).original, {"M=128"});
}

TEST(RefineOriginal, WhatABranchMayHaveDoneIsNotKnown) {
  const auto model = [](const std::string& body) {
    return source_of(std::string(kWrapper) +
                     "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n      "
                     "  self.weight = "
                     "nn.Parameter(torch.randn(640, 100))\n\n    def pick(self, x):\n        if unknown():\n "
                     "           return "
                     "x[:512]\n        return x\n\n    def forward(self, x):\n" +
                     body);
  };
  const Let let = {{"x", "[1024, 100]"}};
  expect_in(kernel_of(model("        return run(x, self.weight)\n"), 80, let).original, {"M=128"});
  EXPECT_EQ(kernel_of(model("        return run(self.pick(x), self.weight)\n"), 80, let).original, "");
  EXPECT_EQ(
      kernel_of(
          model("        if unknown():\n            self.weight = torch.randn(320, 100)\n        return "
                "run(x, self.weight)\n"),
          80, let)
          .original,
      "");
  EXPECT_EQ(
      kernel_of(model("        while unknown():\n            x = run(x, self.weight)\n        return run(x, "
                      "self.weight)\n"),
                80, let)
          .original,
      "");
}

TEST(RefineOriginal, ProblemsOfEveryDirectionAndDimension) {
  const auto layer = [](const std::string& kind, int axes, bool transposed) {
    const std::string sizes = axes == 1 ? "p" : axes == 2 ? "p * q" : "z * p * q";
    std::string text =
        "def run(x, weight, stride, padding):\n    shape, filters = x.shape[2:], weight.shape[2:]\n";
    text +=
        transposed
            ? "    out = [(a - 1) * s - 2 * p + f for a, f, s, p in zip(shape, filters, stride, padding)]\n"
              "    columns = weight.shape[1]\n"
            : "    out = [(a + 2 * p - f) // s + 1 for a, f, s, p in zip(shape, filters, stride, padding)]\n"
              "    columns = weight.shape[0]\n";
    text += axes == 1 ? "    p, = out\n" : axes == 2 ? "    p, q = out\n" : "    z, p, q = out\n";
    text += "    rows = x.shape[0] * " + sizes +
            "\n    y = torch.empty(rows, columns)\n    k[lambda meta: (triton.cdiv(rows, meta['M']), "
            "triton.cdiv(columns, "
            "meta['N']))](x, y, rows, columns)\n    return y\n\n\nclass ModelNew(nn.Module):\n    def "
            "__init__(self, "
            "in_channels, out_channels, kernel_size, stride, padding):\n        super().__init__()\n        "
            "self.conv = nn." +
            kind +
            "(in_channels, out_channels, kernel_size, stride=stride, padding=padding)\n\n    def "
            "forward(self, x):\n"
            "        return run(x, self.conv.weight, self.conv.stride, self.conv.padding)\n";
    return source_of(text);
  };
  const auto found = [&](const std::string& source, const char* problem, double grid) {
    return kernel_of(source, grid, {}, parse_problem(problem)).original;
  };
  // 2*16*16 = 512 rows and 640 columns: 8 * 20, 16 * 10, 4 * 10.
  expect_in(found(layer("Conv2d", 2, false), "mb2ic8ih16oc640kh3ph1", 40), {"M=128"});
  expect_in(found(layer("Conv1d", 1, false), "mb2ic8iw256oc640kw3pw1", 40), {"M=128"});
  expect_in(found(layer("Conv3d", 3, false), "mb1ic8id8oc640kd3pd1", 40), {"M=128"});
  expect_in(found(layer("ConvTranspose2d", 2, true), "mb2ic640ih16oc8kh3ph1 dir=bwd_d", 40), {"M=128"});
  expect_in(found(layer("ConvTranspose3d", 3, true), "mb1ic640id8oc8kd3pd1 dir=bwd_d", 40), {"M=128"});
  // A transposed layer reads 16x16 pixels of 8 channels to make 31x31 of 640.
  const std::string transposed = layer("ConvTranspose2d", 2, true);
  expect_in(found(transposed, "mb2ic640ih31oc8kh3sh2ph1 dir=bwd_d", 160), {"M=128"});
  EXPECT_EQ(found(transposed, "mb2ic640ih31oc8kh3sh2ph1", 160), "");
}

TEST(RefineOriginal, MoreActiveWarpsThanItsBlocksHoldAreNotItsOwn) {
  // 128 blocks for 128 multiprocessors: one each, of 4 or of 8 of 48 warps.
  const std::string source = source_of("def run(x, y):\n    k[(128,)](x, y, 8, 8)\n");
  expect_in(kernel_of(source, 128, {}, {}, 16).original, {"M=128"});
  const RefinedKernel open = kernel_of(source, 128, {}, {}, 8);
  EXPECT_EQ(open.original, "");
  EXPECT_EQ(open.unknown.find("--let"), open.unknown.npos)
      << "the grid is known, and sizes would tell no more";
}

TEST(RefineOriginal, WhatIsSaidOfANameIsChecked) {
  const std::string source = source_of(std::string(kWrapper));
  const std::pair<const char*, const char*> wrong[] = {
      {"", "3"},    {"1x", "3"}, {"x", "12 x 3"}, {"x", "[1.5]"}, {"x", "__import__('os')"},
      {"x", "(3)"}, {"x", "nan"}};
  for (const auto& [name, value] : wrong)
    expect_in(refusal([&] { kernel_of(source, 320, {{name, value}}); }), {"--let", "NAME=VALUE"});
  RefineOptions options = plain();
  options.original = "M=64", options.kernel = "k", options.let = {{"no_such_name", "3"}};
  expect_in(refine(source, {}, kAda, options).notes.at(0), {"--let no_such_name", "no such name"});
  for (const char* value : {"-3", "2.5", "True", "None", "'mean'", "[1, 2]", "(3, 5)", "(3,)"})
    EXPECT_EQ(kernel_of(source, 320, {{"other", value}}).original, "");
}

}  // namespace
}  // namespace convtune::refine_original_test
