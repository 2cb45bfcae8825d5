// The direct patch kernel on an H100: exact on integers, strict about NaN, infinities and padding, the same
// bits in every run.
#include <gtest/gtest.h>

#include <algorithm>

#include "convtune/cases.h"
#include "kernel_test.h"

namespace convtune {
namespace {

class DirectPatch : public KernelTest {
 protected:
  DirectPatch() : KernelTest(cuda::direct_patch_sm90(), "sm_90a") {}
};

Conv2dProblem random_patches(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  constexpr std::int64_t kColumns[] = {4, 8, 16, 32};
  a.n = pick(1, 9), a.c = pick(1, 5), a.k = pick(1, 300);
  a.s = a.stride_w = kColumns[pick(0, 3)];
  a.r = a.stride_h = a.s == 4 ? 4 * pick(1, 3) : a.s == 8 ? 2 * pick(1, 6) : pick(1, 16);
  a.h = a.r * pick(1, 12) + pick(0, a.r - 1), a.w = 32 * pick(1, index % 4 == 0 ? 16 : 4);
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::tf32;
  return a;
}

TEST_F(DirectPatch, IsExactOnVisionTransformers) {
  std::vector<Conv2dProblem> problems;
  for (const char* text :
       {"vit_b16_patchify", "convnext_patchify", "mb9ic3ih224oc768kh32sh32", "mb3ic3ih384oc1024kh16sh16",
        "mb2ic3ih1024oc768kh16sh16", "mb1ic3ih224oc192kh16sh16"}) {
    Conv2dProblem problem = find_problem(text);
    problem.n = std::min<std::int64_t>(problem.n, 9);
    problem.precision = Precision::tf32;
    problems.push_back(problem);
  }
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_EQ(refused_, 0);
  expect_exact(cases, 3000);
}

TEST_F(DirectPatch, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_patches(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_LT(refused_, 6);
  expect_exact(cases, 2000);
}

const char* const kStrictProblems[] = {
    "mb2ic3ih50iw96oc70kh16sh16 precision=tf32 act=relu",
    "mb3ic2ih17iw64oc10kh8sh8 precision=tf32",
    "mb2ic5ih20iw32oc40kh4sh4 precision=tf32 bias=0 act=relu",
};

TEST_F(DirectPatch, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectPatch, TakesBadlyAlignedPointers) {
  expect_any_alignment(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectPatch, CountsMoreOutputsThanAnIntCan) {
  expect_exact_beyond_int({first_guess(parse_problem("mb700ic1ih256oc768kh4sh4 precision=tf32"))});
}

TEST_F(DirectPatch, GivesTheSameBitsEveryTime) {
  for (const char* name : {"vit_b16_patchify", "convnext_patchify"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 16;
    problem.precision = Precision::tf32;
    expect_same_bits(first_guess(problem));
  }
}

}  // namespace
}  // namespace convtune
