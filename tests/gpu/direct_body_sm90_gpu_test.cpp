// The direct body kernel on an H100: exact on integers, strict about NaN, infinities and padding, the same
// bits in every run.
#include <gtest/gtest.h>

#include "convtune/cases.h"
#include "kernel_test.h"

namespace convtune {
namespace {

class DirectBody : public KernelTest {
 protected:
  DirectBody() : KernelTest(cuda::direct_body_sm90(), "sm_90a") {}
};

Conv2dProblem random_body(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  a.n = pick(1, 5), a.c = pick(8, 70), a.k = pick(1, 200), a.r = pick(1, 5), a.s = pick(1, 5);
  a.stride_h = pick(1, 3), a.stride_w = pick(1, 3);
  a.dilation_h = pick(1, 2), a.dilation_w = pick(1, 3);
  a.pad_top = pick(0, 4), a.pad_bottom = pick(0, 4), a.pad_left = pick(0, 4), a.pad_right = pick(0, 4);
  a.h = pick(a.r * 2, 40), a.w = pick(a.s * 3, index % 4 == 0 ? 300 : 60);
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::tf32;
  return a;
}

TEST_F(DirectBody, IsExactOnTheBodySuite) {
  std::vector<Conv2dProblem> problems;
  for (Conv2dProblem problem : load_suite("body")) {
    problem.n = 2;
    problem.precision = Precision::tf32;
    problems.push_back(problem);
  }
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_EQ(refused_, 0);
  expect_exact(cases, 3000);
}

TEST_F(DirectBody, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_body(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_LT(refused_, 6);
  expect_exact(cases, 2000);
}

const char* const kStrictProblems[] = {
    "mb2ic19ih21iw23oc70kh5kw3sh2sw4ph2pw1 precision=tf32 act=relu",
    "mb2ic8ih17iw29oc10kh3kw5sh1sw2ph2 precision=tf32",
    "mb3ic12ih14iw18oc12kh3ph1 precision=tf32 bias=0 act=relu",
};

TEST_F(DirectBody, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectBody, TakesBadlyAlignedPointers) {
  std::vector<Conv2dProblem> problems = parsed(kStrictProblems);
  // What is stored 16 bytes at a time where it is aligned.
  for (const char* text : {"mb1ic13ih16iw16oc66kh1", "mb5ic16ih7oc16kh3ph1"})
    problems.push_back(parse_problem(text + std::string(" precision=tf32")));
  expect_any_alignment(cases_of(problems));
}

TEST_F(DirectBody, CountsMoreOutputsThanAnIntCan) {
  expect_exact_beyond_int({first_guess(parse_problem("mb350ic8ih224oc128kh1 precision=tf32"))});
}

TEST_F(DirectBody, GivesTheSameBitsEveryTime) {
  for (const char* name : {"resnet_3x3_128", "resnet_1x1_s2_256_512"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 16;
    problem.precision = Precision::tf32;
    expect_same_bits(first_guess(problem));
  }
}

}  // namespace
}  // namespace convtune
