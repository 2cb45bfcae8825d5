// Outputs of two processes are compared.
#include "triton/triton_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace convtune::triton_run_test {
namespace {

using testing::HasSubstr;

TEST(TritonRun, OutputsAreComparedUpToRounding) {
  const TritonOutput original = {{2, 3}, "float32", true, 5, 1.0, 100, {10, -3}, {1, -1, 0}};
  TritonOutput other = original;
  other.bits = 6, other.values[0] = 1.0001, other.sums[1] = -3.0009;
  EXPECT_EQ(difference(original, other), "");
  other.values[2] = 2e-4;
  EXPECT_THAT(difference(original, other), HasSubstr("an output is 0.0002 and the original's 0"));
  other = original, other.sums[0] = 10.01;  // one output of a hundred, nowhere near the others
  EXPECT_THAT(difference(original, other), HasSubstr("100 outputs have the sum 10.01 and the original's 10"));
  other = original, other.shape = {3, 2};
  EXPECT_THAT(difference(original, other), HasSubstr("another shape"));
  other = original, other.finite = false;
  EXPECT_THAT(difference(original, other), HasSubstr("no finite number"));
  other = original, other.values.pop_back();
  EXPECT_THAT(difference(original, other), HasSubstr("another form"));
  other = original, other.values[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(difference(original, other), "");
}

}  // namespace
}  // namespace convtune::triton_run_test
