// The direct stem kernel on an H100: exact on integers, strict about NaN, infinities and padding, the same
// bits in every run.
#include <gtest/gtest.h>

#include "convtune/cases.h"
#include "kernel_test.h"

namespace convtune {
namespace {

class DirectStem : public KernelTest {
 protected:
  DirectStem() : KernelTest(cuda::direct_stem_sm90(), "sm_90a") {}
};

Conv2dProblem random_stem(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  a.n = pick(1, 3), a.c = pick(1, 4), a.k = pick(1, 140), a.r = pick(1, 11), a.s = pick(1, 11);
  a.stride_h = pick(1, 5), a.stride_w = 4;
  a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r), a.pad_left = pick(0, a.s),
  a.pad_right = pick(0, a.s);
  a.h = pick(a.r, 40), a.w = pick(32 + a.s, index % 4 == 0 ? 600 : 260);
  if (index % 2 == 0) a.w = (a.w + 3) / 4 * 4;  // bulk copies
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::tf32;
  return a;
}

TEST_F(DirectStem, IsExactOnTheStemSuite) {
  std::vector<Conv2dProblem> problems;
  for (Conv2dProblem problem : load_suite("stem")) {
    if (problem.stride_w != 4) continue;
    problem.n = 2;
    problem.precision = Precision::tf32;
    problems.push_back(problem);
  }
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_EQ(refused_, 0);
  expect_exact(cases, 3000);
}

TEST_F(DirectStem, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_stem(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_LT(refused_, 15);
  expect_exact(cases, 2000);
}

const char* const kStrictProblems[] = {
    "mb2ic3ih21iw37oc20kh5kw3sh2sw4ph2pw1 precision=tf32 act=relu",
    "mb2ic2ih17iw61oc16kh3kw6sh1sw4ph2 precision=tf32",
    "mb3ic3ih14iw64oc40kh3sh4ph1 precision=tf32 bias=0 act=relu",
};

TEST_F(DirectStem, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectStem, TakesBadlyAlignedPointers) {
  std::vector<Conv2dProblem> problems = parsed(kStrictProblems);
  // Where x and y are aligned, bulk copies and boxes.
  for (const char* text :
       {"mb1ic3ih16iw64oc16kh3sh4ph1", "mb2ic2ih20iw44oc8kh5sh4ph2", "mb2ic3ih16iw48oc16kh4sh4"})
    problems.push_back(parse_problem(text + std::string(" precision=tf32")));
  expect_any_alignment(cases_of(problems), {0, 1, 2, 4});
}

TEST_F(DirectStem, CountsMoreOutputsThanAnIntCan) {
  expect_exact_beyond_int({first_guess(parse_problem("mb700ic1ih896oc64kh3sh4ph1 precision=tf32"))});
}

TEST_F(DirectStem, GivesTheSameBitsEveryTime) {
  for (const char* name : {"alexnet_conv1", "convnext_patchify"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 32;
    problem.precision = Precision::tf32;
    expect_same_bits(first_guess(problem));
  }
}

}  // namespace
}  // namespace convtune
