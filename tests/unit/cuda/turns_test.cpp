// Kernels that take their tiles forwards and backwards in turns, so that each finds in L2 what the one before
// it wrote last: their launches ask for the turn. (That both directions give the same bits, a test on a GPU
// proves.)
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "cuda/algorithms/algorithms.h"
#include "kernel_expectations.h"

namespace convtune::turns_test {
namespace {

void expect_turns(const Algorithm& algorithm, const char* text) {
  const ConvProblem problem = tf32(text);
  const Config config = algorithm.candidates(problem, gpu()).front();
  const cuda::LaunchPlan plan = cuda::kernel_algorithm(algorithm)->plan(problem, gpu(), config);
  const auto is_turn = [](const cuda::Argument& one) { return std::holds_alternative<cuda::Turn>(one); };
  const auto& arguments = plan.kernel_launch().arguments;
  EXPECT_EQ(std::count_if(arguments.begin(), arguments.end(), is_turn), 1) << algorithm.name();
}

TEST(Turns, AreAskedForByTheKernelsOfModelsInTf32) {
  expect_turns(cuda::direct_stem_sm80(), "mb64ic3ih224oc64kh7sh2ph3");
  expect_turns(cuda::direct_body_sm90(), "mb64ic64ih56oc64kh3ph1");
  expect_turns(cuda::implicit_gemm_sm90(), "mb64ic64ih56oc256kh1 residual=1");
}

}  // namespace
}  // namespace convtune::turns_test
