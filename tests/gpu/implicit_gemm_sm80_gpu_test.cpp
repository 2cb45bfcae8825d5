// The general tensor-core kernel on a GPU: exact on integers for any problem, strict about NaN, infinities
// and padding, the same bits in every run.
#include <gtest/gtest.h>

#include <algorithm>

#include "convtune/cases.h"
#include "convtune/verify.h"
#include "kernel_test.h"

namespace convtune {
namespace {

class ImplicitGemm : public KernelTest {
 protected:
  ImplicitGemm() : KernelTest(cuda::implicit_gemm_sm80(), "") {}

  // The first guess, and the first of those that serve every problem.
  std::vector<Case> guesses_of(const std::vector<Conv2dProblem>& problems) {
    std::vector<Case> cases;
    for (const Conv2dProblem& problem : problems) {
      const std::vector<Config> all = algorithm().candidates(problem, device());
      const auto general = std::find_if(all.begin(), all.end(),
                                        [&](const Config& config) { return !algorithm().compiles(config); });
      cases.push_back({problem, all.front()});
      cases.push_back({problem, *general});
    }
    return cases;
  }
};

// Both layouts; terms in chunks and in a row; pixels by fours and not; groups; every precision.
const char* const kProblems[] = {
    "mb2ic3ih21iw23oc20kh5kw3sh2sw4ph2pw1 precision=tf32 act=relu",
    "mb2ic40ih12oc24kh3ph1 precision=tf32",
    "mb2ic40ih12oc24kh3ph1 precision=tf32 layout=nhwc bias=0 act=relu",
    "mb3ic32ih8oc33kh1 precision=tf32",
    "mb2g3ic15ih9oc21kh3ph2dh1 precision=tf32 layout=nhwc",
    "mb2g6ic6ih13oc12kh5ph2 precision=tf32 pad_bottom=0",
    "mb2ic24ih10oc18kh3ph1 precision=fp32",
    "mb2ic24ih10oc18kh3ph1 precision=fp16 act=relu",
    "mb2ic24ih10oc20kh3ph1 precision=bf16 layout=nhwc",
};

TEST_F(ImplicitGemm, IsExactOnEdges) {
  std::vector<Case> cases;
  for (const Conv2dProblem& problem : parsed(kProblems)) {
    const std::vector<Config> all = algorithm().candidates(problem, device());
    for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(all.size() / 8, 1))
      cases.push_back({problem, all[i]});
  }
  compile(cases);
  expect_exact(cases, 0);
}

TEST_F(ImplicitGemm, IsExactOnRandomProblems) {
  VerifyOptions options;
  options.algorithm = "implicit_gemm_sm80";
  constexpr std::int64_t kAsked = 400;
  const VerifyReport report = verify_random(kAsked, 9, device().device, options);
  EXPECT_EQ(report.mismatches, 0);
  for (const Mismatch& one : report.failures) ADD_FAILURE() << one.what << "\n" << one.repro;
  // It serves every problem, with one config at least that needs no compiling; more are as many as they are.
  EXPECT_GE(report.checks, kAsked + report.compiled);
  EXPECT_GE(report.compiled, 12);
}

TEST_F(ImplicitGemm, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  expect_strict(guesses_of(parsed(kProblems)));
}

TEST_F(ImplicitGemm, TakesBadlyAlignedPointers) {
  expect_any_alignment(guesses_of(parsed(kProblems)));
}

TEST_F(ImplicitGemm, CountsMoreOutputsThanAnIntCan) {
  const Conv2dProblem problem = parse_problem("mb700ic1ih224oc64kh3ph1 precision=tf32");
  expect_exact_beyond_int(guesses_of({problem}));
}

TEST_F(ImplicitGemm, GivesTheSameBitsEveryTime) {
  for (const char* name : {"resnet_3x3_128", "alexnet_conv2"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 4;
    problem.precision = Precision::tf32;
    expect_same_bits(first_guess(problem));
  }
}

TEST_F(ImplicitGemm, ErrsNoMoreThanItsPrecisionAllows) {
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"})
    for (const char* layout : {"nchw", "nhwc"}) {
      const Conv2dProblem problem =
          parse_problem("mb2ic128ih20oc64kh3ph1 precision=" + std::string(precision) + " layout=" + layout);
      Testbed bed(problem, gpu(), TestData::real, 3, 3000);
      const auto executable =
          algorithm().build(problem, device(), algorithm().candidates(problem, device()).front());
      EXPECT_EQ(bed.check(*executable).failure, "") << precision << " " << layout;
    }
}

}  // namespace
}  // namespace convtune
