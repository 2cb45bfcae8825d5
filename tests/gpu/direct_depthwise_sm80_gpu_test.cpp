// The depthwise kernel for channels last, on a GPU: exact on integers, strict about NaN, infinities and
// padding, on pointers of any alignment, and beyond 2^31 outputs.
#include <gtest/gtest.h>

#include <algorithm>

#include "convtune/cases.h"
#include "kernel_test.h"

namespace convtune {
namespace {

Conv2dProblem random_problem(std::uint64_t index) {
  Picker pick(index);
  Conv2dProblem a;
  a.layout = Layout::nhwc;
  a.n = pick(1, 4), a.c = index % 2 == 0 ? 4 * pick(1, 20) : pick(1, 70), a.groups = a.k = a.c;
  a.r = pick(1, 5), a.s = pick(1, 5);
  if (index % 3 == 0) a.r = pick(1, 12), a.s = pick(1, 12);
  a.stride_h = pick(1, 3), a.stride_w = pick(1, 3);
  a.dilation_h = index % 5 == 0 ? pick(1, 3) : 1, a.dilation_w = index % 5 == 0 ? pick(1, 3) : 1;
  a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r), a.pad_left = pick(0, a.s),
  a.pad_right = pick(0, a.s);
  a.h = a.dilation_h * (a.r - 1) + pick(1, 20), a.w = a.dilation_w * (a.s - 1) + pick(1, 30);
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::fp32;
  return a;
}

class DirectDepthwise : public KernelTest {
 protected:
  DirectDepthwise() : KernelTest(cuda::direct_depthwise_sm80(), "") {}
};

TEST_F(DirectDepthwise, IsExactOnTheSuites) {
  std::vector<Conv2dProblem> problems;
  for (const char* suite : {"depthwise", "edges"})
    for (Conv2dProblem problem : load_suite(suite)) {
      problem.layout = Layout::nhwc;
      problem.n = std::min<std::int64_t>(problem.n, 2);
      if (problem.n > 0 && algorithm().supports(problem, device())) problems.push_back(problem);
    }
  EXPECT_GE(problems.size(), 8u);
  expect_exact(cases_of(problems), 3000);
}

TEST_F(DirectDepthwise, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 80; ++i) problems.push_back(random_problem(i));
  expect_exact(cases_of(problems), 3000);
  EXPECT_EQ(refused_, 0);
}

const char* const kStrictProblems[] = {
    "mb2g3ic3ih13iw17oc3kh3kw5sh1sw2ph1pw2 precision=fp32 act=relu layout=nhwc",
    "mb2g8ic8ih12iw16oc8kh3ph1 precision=tf32 layout=nhwc",
    "mb1g12ic12ih7oc12kh7ph3 precision=bf16 bias=0 layout=nhwc",
    "mb1g4ic4ih14oc4kh13ph6 precision=fp32 layout=nhwc",
};

TEST_F(DirectDepthwise, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectDepthwise, TakesBadlyAlignedPointers) {
  expect_any_alignment(cases_of(parsed(kStrictProblems)));
}

TEST_F(DirectDepthwise, CountsMoreOutputsThanAnIntCan) {
  expect_exact_beyond_int(
      {first_guess(parse_problem("g64mb56ic64ih4oc64kh3ph400 precision=fp32 layout=nhwc"))});
}

}  // namespace
}  // namespace convtune
