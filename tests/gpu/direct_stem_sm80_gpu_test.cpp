// The direct stem kernel of compute capability 8.0 and up: exact on integers, strict about NaN, infinities
// and padding, the same bits in every run.
#include <gtest/gtest.h>

#include "convtune/cases.h"
#include "kernel_test.h"

namespace convtune {
namespace {

class DirectStemSm80Gpu : public KernelTest {
 protected:
  DirectStemSm80Gpu() : KernelTest(cuda::direct_stem_sm80(), "") {}
};

Conv2dProblem random_stem(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  a.n = pick(1, 3), a.c = pick(1, 4), a.k = pick(1, 140), a.r = pick(1, 11), a.s = pick(1, 11);
  a.stride_h = pick(1, 5), a.stride_w = pick(1, 5);
  a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r), a.pad_left = pick(0, a.s),
  a.pad_right = pick(0, a.s);
  a.h = pick(a.r, 40), a.w = pick(a.s, index % 4 == 0 ? 300 : 70);
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::tf32;
  return a;
}

TEST_F(DirectStemSm80Gpu, IsExactOnTheStemSuite) {
  std::vector<Conv2dProblem> problems;
  for (Conv2dProblem problem : load_suite("stem")) {
    problem.n = 2;
    problem.precision = Precision::tf32;
    problems.push_back(problem);
  }
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_EQ(refused_, 0);
  expect_exact(cases, 3000);
}

TEST_F(DirectStemSm80Gpu, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_stem(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_LT(refused_, 6);
  expect_exact(cases, 2000);
}

const char* const kStrictProblems[] = {
    "mb2ic3ih21iw23oc20kh5kw3sh2sw4ph2pw1 precision=tf32 act=relu",
    "mb2ic2ih17iw29oc10kh3kw5sh1sw2ph2 precision=tf32",
    "mb2ic3ih14iw18oc12kh3ph1 precision=tf32 bias=0 act=relu",
};

TEST_F(DirectStemSm80Gpu, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectStemSm80Gpu, TakesBadlyAlignedPointers) {
  std::vector<Conv2dProblem> problems = parsed(kStrictProblems);
  // Inputs that are read 1, 2 and 4 columns at a time where x is aligned.
  for (const char* text :
       {"mb1ic3ih16iw16oc16kh3ph1", "mb1ic2ih20iw22oc8kh5sh2ph2", "mb2ic3ih16iw24oc16kh4sh4"})
    problems.push_back(parse_problem(text + std::string(" precision=tf32")));
  // Weights in stages.
  problems.push_back(parse_problem("mb1ic3ih43oc96kh11sh4ph2 precision=tf32"));
  expect_any_alignment(cases_of(problems));
}

TEST_F(DirectStemSm80Gpu, CountsMoreOutputsThanAnIntCan) {
  expect_exact_beyond_int({first_guess(parse_problem("mb700ic1ih224oc64kh3ph1 precision=tf32"))});
}

TEST_F(DirectStemSm80Gpu, GivesTheSameBitsEveryTime) {
  for (const char* name : {"alexnet_conv1", "resnet_stem"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 32;
    problem.precision = Precision::tf32;
    expect_same_bits(first_guess(problem));
  }
}

}  // namespace
}  // namespace convtune
