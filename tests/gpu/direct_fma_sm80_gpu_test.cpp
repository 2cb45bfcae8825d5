// The direct kernel on CUDA cores, on a GPU: exact on integers, strict about NaN, infinities and padding, on
// pointers of any alignment, and beyond 2^31 outputs.
#include <gtest/gtest.h>

#include <algorithm>

#include "convtune/cases.h"
#include "kernel_test.h"

namespace convtune {
namespace {

Conv2dProblem random_problem(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  const bool stem = index % 4 == 0;
  a.groups = stem ? 1 : pick(1, 9);
  a.n = pick(1, 5), a.c = a.groups * pick(1, 4), a.k = a.groups * pick(1, stem ? 40 : 9);
  a.r = pick(1, 4), a.s = pick(1, 4);
  if (a.c == a.groups && index % 3 == 0) a.r = pick(1, 11), a.s = pick(1, 11);
  a.stride_h = pick(1, 3), a.stride_w = pick(1, 3);
  a.dilation_h = index % 5 == 0 ? pick(1, 3) : 1, a.dilation_w = index % 5 == 0 ? pick(1, 3) : 1;
  a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r), a.pad_left = pick(0, a.s),
  a.pad_right = pick(0, a.s);
  a.h = a.dilation_h * (a.r - 1) + pick(1, 30), a.w = a.dilation_w * (a.s - 1) + pick(1, 40);
  if (index % 2 == 0) a.w = (a.w + 3) / 4 * 4;
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::fp32;
  return a;
}

class DirectFma : public KernelTest {
 protected:
  DirectFma() : KernelTest(cuda::direct_fma_sm80(), "") {}
  const Algorithm& fma() { return algorithm(); }

  // For each problem the first guess and some of all that it accepts, compiled beforehand by all processors.
  std::vector<Case> cases_of(const std::vector<Conv2dProblem>& problems, int others = 3) {
    std::vector<Case> cases;
    for (std::size_t i = 0; i < problems.size(); ++i) {
      const std::vector<Config> configs = fma().candidates(problems[i], device());
      EXPECT_FALSE(configs.empty()) << to_string(problems[i])
                                    << fma().supports(problems[i], device()).reason();
      if (configs.empty()) continue;
      cases.push_back({problems[i], configs.front()});
      Picker pick(1000 + i);
      for (int found = 0, tried = 0; found < others && tried < 5000; ++tried) {
        Config config;
        for (const auto& [name, most] :
             {std::pair{"rows", 8}, {"filters", 8}, {"down", 6}, {"units", 5}, {"chunks", 5}, {"passes", 6}})
          config.values.emplace_back(name, pick(1, most));
        for (const char* name : {"kept", "uniform", "staged"}) config.values.emplace_back(name, pick(0, 1));
        // Few are; one in two is wanted.
        if (found % 2 == 1 && config.at("kept") == 0 && tried < 3000) continue;
        if (!fma().accepts(problems[i], device(), config)) continue;
        cases.push_back({problems[i], config});
        ++found;
      }
    }
    compile(cases);
    return cases;
  }
};

TEST_F(DirectFma, IsExactOnTheSuites) {
  std::vector<Conv2dProblem> problems;
  for (const char* suite : {"depthwise", "stem", "edges"})
    for (Conv2dProblem problem : load_suite(suite)) {
      problem.n = std::min<std::int64_t>(problem.n, 2);
      if (fma().supports(problem, device())) problems.push_back(problem);
    }
  EXPECT_GE(problems.size(), 9u);
  expect_exact(cases_of(problems, 2), 3000);
}

TEST_F(DirectFma, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_problem(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_GT(std::count_if(cases.begin(), cases.end(), [](const Case& c) { return c.config.at("kept") == 1; }),
            10);
  expect_exact(cases, 3000);
}

const char* const kStrictProblems[] = {
    "mb2g3ic3ih13iw17oc6kh3kw5sh1sw2ph1pw2 precision=fp32 act=relu",
    "mb2g2ic8ih12iw16oc8kh3ph1 precision=tf32",
    "mb2ic1ih9iw11oc10kh5ph2 precision=bf16 bias=0",
    "mb5g4ic4ih7oc4kh3ph1 precision=fp32",
};

TEST_F(DirectFma, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectFma, TakesBadlyAlignedPointers) {
  std::vector<Conv2dProblem> problems = parsed(kStrictProblems);
  problems.push_back(parse_problem("mb2g4ic4ih8iw16oc4kh3ph1 precision=fp32"));
  expect_any_alignment(cases_of(problems));
}

TEST_F(DirectFma, CountsMoreOutputsThanAnIntCan) {
  expect_exact_beyond_int({first_guess(parse_problem("mb700ic1ih224oc64kh3ph1 precision=fp32"))});
}

}  // namespace
}  // namespace convtune
