#include "problem/epilogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "problem/activation.h"
#include "problem/element.h"

namespace convtune::epilogue_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double activated(const std::string& act, double value) {
  const ConvProblem problem = parse_problem("mb1ic1ih1oc1kh1 act=" + act);
  return activate(problem.activation, value, static_cast<double>(problem.alpha),
                  static_cast<double>(problem.beta));
}

// Numbers of the definitions, worked out apart.
TEST(Activate, KnowsItsFormulas) {
  EXPECT_EQ(activated("none", -2.5), -2.5);
  EXPECT_EQ(activated("relu", -2.5), 0);
  EXPECT_EQ(activated("relu", 2.5), 2.5);
  EXPECT_EQ(activated("clip:0:6", 7), 6);
  EXPECT_EQ(activated("clip:0:6", -1), 0);
  EXPECT_EQ(activated("clip:-1:1", 0.5), 0.5);
  EXPECT_EQ(activated("leaky_relu:0.25", -8), -2);
  EXPECT_EQ(activated("leaky_relu:0.25", 8), 8);
  EXPECT_NEAR(activated("sigmoid", 1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(activated("silu", 1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(activated("silu", -2), -0.2384058440442351, 1e-15);
  EXPECT_NEAR(activated("gelu_erf", 1), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(activated("gelu_erf", -1), -0.15865525393145707, 1e-15);
  EXPECT_NEAR(activated("gelu_tanh", 1), 0.8411919906082768, 1e-15);
  EXPECT_EQ(activated("hardswish", 4), 4);
  EXPECT_EQ(activated("hardswish", -3), 0);
  EXPECT_NEAR(activated("hardswish", 1), 4.0 / 6, 1e-15);
}

TEST(Activate, SaturatesWithoutNaN) {
  for (const char* act : {"sigmoid", "silu", "gelu_erf", "gelu_tanh"}) {
    EXPECT_EQ(activated(act, -1e4), 0) << act;
    EXPECT_EQ(activated(act, 1e4), std::string(act) == "sigmoid" ? 1 : 1e4) << act;
  }
  EXPECT_EQ(activated("sigmoid", kInf), 1);
  EXPECT_EQ(activated("clip:0:6", kInf), 6);
  for (const Activation act : all_activations())
    EXPECT_TRUE(std::isnan(activate(act, std::nan(""), 0, 6))) << to_string(act);
}

// 1 + 2^-8 is half way between two numbers of bfloat16: twice half way is lost twice, once it is not.
TEST(Epilogue, RoundsOnceOrEagerly) {
  ConvProblem problem = parse_problem("mb1ic1ih1oc1kh1 dtype=bf16 residual=1");
  const double half = 0x1p-8;
  EXPECT_EQ(rounded(DType::bf16, epilogue(problem, 1, half, half)), 1 + 2 * half);
  problem.rounding = Rounding::eager;
  EXPECT_EQ(rounded(DType::bf16, epilogue(problem, 1, half, half)), 1);
  EXPECT_EQ(epilogue(problem, 1 + half, 0, 0), 1);  // the sum itself
  problem.dtype.y = DType::f32;
  EXPECT_EQ(epilogue(problem, 1, half, half), 1 + 2 * half);
}

TEST(Epilogue, AddsWhatTheProblemHasThenActivates) {
  ConvProblem problem = parse_problem("mb1ic1ih1oc1kh1 residual=1 act=relu");
  EXPECT_EQ(epilogue(problem, -3, 1, 1.5), 0);
  EXPECT_EQ(epilogue(problem, -3, 1, 2.5), 0.5);
  problem.residual = false;
  EXPECT_EQ(epilogue(problem, -3, 4, 99), 1);
  problem.bias = false;
  EXPECT_EQ(epilogue(problem, 3, 99, 99), 3);
}

TEST(Epilogue, HasASnakeOfWhatItGives) {
  ConvProblem problem = parse_problem("mb1ic1ih1oc1kh1 dtype=bf16 snake=after");
  const double sine = std::sin(1.5 * (1 + 0x1p-9));
  EXPECT_DOUBLE_EQ(snaked(problem, 1 + 0x1p-9, 1.5, 2), 1 + 0x1p-9 + 2 * sine * sine);
  problem.rounding = Rounding::eager;
  EXPECT_DOUBLE_EQ(snaked(problem, 1 + 0x1p-9, 1.5, 2), 1 + 2 * std::sin(1.5) * std::sin(1.5));
  EXPECT_TRUE(std::isnan(snaked(problem, kInf, 1, 1)));
  EXPECT_EQ(snaked(problem, 3, 0, 5), 3);
}

}  // namespace
}  // namespace convtune::epilogue_test
