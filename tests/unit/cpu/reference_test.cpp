// The oracle and the `reference` algorithm: against sums done by hand, against a brute force that
// goes the other way (each input element is added to the outputs it touches), and at NaN and Inf.
#include "cpu/reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/reference/oracle.h"
#include "host_tensors.h"
#include "problem/random_problem.h"

namespace convtune::reference_test {
namespace {

using Floats = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Floats run_reference(const ConvProblem& problem, const HostTensors& tensors) {
  const auto executable = cpu::reference().build(problem, cpu::backend().info(), {});
  return run(problem, *executable, tensors, pack(*executable, tensors).get());
}

// Both must give the numbers done by hand.
void expect_output(const ConvProblem& problem, const HostTensors& tensors, const Floats& expected) {
  EXPECT_EQ(oracle_output(problem, tensors), expected);
  EXPECT_EQ(run_reference(problem, tensors), expected);
}

TEST(Reference, PlainByHand) {
  ConvProblem problem{.h = 3, .w = 3, .r = 2, .s = 2};
  // 1 + 2*2 + 3*4 + 4*5 = 37, and so on.
  expect_output(problem, {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4}, {0.5F}}, {37.5F, 47.5F, 67.5F, 77.5F});
}

TEST(Reference, WithoutBiasTheBiasIsNotRead) {
  ConvProblem problem{.h = 3, .w = 3, .r = 2, .s = 2, .bias = false};
  expect_output(problem, {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4}, {}}, {37, 47, 67, 77});
}

TEST(Reference, StridesByHand) {
  ConvProblem problem{.h = 4, .w = 4, .r = 2, .s = 2, .stride_h = 2};
  const Floats image = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  expect_output(problem, {image, {1, 1, 1, 1}, {0}}, {14, 18, 22, 46, 50, 54});
  problem.stride_h = 1;
  problem.stride_w = 3;
  problem.s = 1;
  expect_output(problem, {image, {1, 1}, {0}}, {6, 12, 14, 20, 22, 28});
}

TEST(Reference, DilationsByHand) {
  ConvProblem problem{.h = 3, .w = 3, .r = 2, .s = 2, .dilation_h = 2, .dilation_w = 2};
  const Floats image = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  expect_output(problem, {image, {1, 2, 3, 4}, {0}}, {1 + 6 + 21 + 36});
  problem.dilation_w = 1;
  expect_output(problem, {image, {1, 2, 3, 4}, {0}}, {1 + 4 + 21 + 32, 2 + 6 + 24 + 36});
}

TEST(Reference, GroupsByHand) {
  ConvProblem problem{.c = 4, .h = 1, .w = 2, .k = 2, .groups = 2};
  expect_output(problem, {{1, 2, 3, 4, 5, 6, 7, 8}, {1, 10, 100, 1000}, {0, 1}}, {31, 42, 7501, 8601});
}

TEST(Reference, DepthwiseWithTwoOutputsAChannelByHand) {
  ConvProblem problem{.c = 2, .h = 1, .w = 2, .k = 4, .groups = 2};
  expect_output(problem, {{1, 2, 3, 4}, {1, 10, 100, 1000}, {0, 0, 0, 0}},
                {1, 2, 10, 20, 300, 400, 3000, 4000});
}

TEST(Reference, AsymmetricPaddingByHand) {
  ConvProblem problem{.h = 2, .w = 2, .r = 2, .s = 2, .pad_top = 1, .pad_right = 2};
  expect_output(problem, {{1, 2, 3, 4}, {1, 2, 3, 4}, {0}}, {11, 6, 0, 30, 14, 0});
  problem = {.h = 2, .w = 2, .r = 2, .s = 2, .pad_left = 1, .pad_bottom = 1};
  expect_output(problem, {{1, 2, 3, 4}, {1, 2, 3, 4}, {0}}, {2 + 12, 30, 6, 3 + 8});
}

TEST(Reference, BatchAndLayoutByHand) {
  ConvProblem problem{.n = 2, .c = 2, .h = 1, .w = 2, .k = 2, .layout = Layout::nhwc};
  const Floats w = {1, 1, 1, -1};
  expect_output(problem, {{1, 2, 3, 4, 5, 6, 7, 8}, w, {0, 0}}, {3, -1, 7, -1, 11, -1, 15, -1});
  problem.layout = Layout::nchw;
  expect_output(problem, {{1, 2, 3, 4, 5, 6, 7, 8}, w, {0, 0}}, {4, 6, -2, -2, 12, 14, -2, -2});
}

TEST(Reference, ReluKeepsNan) {
  ConvProblem problem{.h = 1, .w = 4, .activation = Activation::relu};
  const HostTensors tensors{{-2, kNan, 3, -kInf}, {2}, {1}};
  const Floats y = run_reference(problem, tensors), values = oracle_output(problem, tensors);
  for (const Floats& output : {y, values}) {
    EXPECT_EQ(output[0], 0);
    EXPECT_TRUE(std::isnan(output[1]));
    EXPECT_EQ(output[2], 7);
    EXPECT_EQ(output[3], 0);
  }
}

TEST(Reference, PaddingIsNeverMultiplied) {
  ConvProblem problem{
      .h = 1, .w = 1, .r = 3, .s = 3, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};
  expect_output(problem, {{5}, {kInf, kInf, kInf, kNan, 2, kNan, kInf, -kInf, kInf}, {1}}, {11});
}

// Each element is one product of 40,000 taps, which are looked at line by line: one by one that is 3,200
// million times for these two.
TEST(Reference, LeavesLinesBesideTheImageAlone) {
  constexpr std::int64_t kSize = 200;
  ConvProblem gradient{.h = kSize, .w = kSize, .r = kSize, .s = kSize, .bias = false};
  gradient.direction = Direction::backward_data;
  ConvProblem layer{.r = kSize, .s = kSize, .bias = false};
  layer.pad_top = layer.pad_left = layer.pad_bottom = layer.pad_right = kSize - 1;
  const Floats w = small_integers(gradient, 3).w, one = {3};
  for (std::int64_t i = 0; i < kSize * kSize; ++i) {
    ASSERT_EQ(cpu::oracle(gradient, {.w = w.data(), .dy = one.data()}, i).value, 3 * w[i]);
    ASSERT_EQ(cpu::oracle(layer, {.x = one.data(), .w = w.data()}, i).value, 3 * w[kSize * kSize - 1 - i]);
  }
}

TEST(Reference, MagnitudeIsTheSumOfAbsoluteProducts) {
  ConvProblem problem{.h = 1, .w = 3, .s = 3, .activation = Activation::relu};
  const Floats x = {1, -2, 3}, w = {-4, 5, 6}, bias = {-7};
  const cpu::OracleValue value = cpu::oracle(problem, {x.data(), w.data(), bias.data()}, 0);
  EXPECT_EQ(value.value, 0);  // -7 - 4 - 10 + 18 = -3
  EXPECT_EQ(value.magnitude, 7 + 4 + 10 + 18);
}

// Adds every input element to the outputs that it touches; sums in integers.
std::vector<float> scatter(const ConvProblem& a, const HostTensors& tensors) {
  const bool nchw = a.layout == Layout::nchw;
  const auto index = [nchw](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w,
                            std::int64_t channels, std::int64_t height, std::int64_t width) {
    return nchw ? ((n * channels + c) * height + h) * width + w
                : ((n * height + h) * width + w) * channels + c;
  };
  const std::int64_t group_c = a.c / a.groups, group_k = a.k / a.groups, p_size = a.p(), q_size = a.q();
  std::vector<std::int64_t> sums(a.output_elements());
  for (std::int64_t n = 0; n < a.n; ++n)
    for (std::int64_t c = 0; c < a.c; ++c)
      for (std::int64_t h = 0; h < a.h; ++h)
        for (std::int64_t w = 0; w < a.w; ++w)
          for (std::int64_t k = c / group_c * group_k; k < (c / group_c + 1) * group_k; ++k)
            for (std::int64_t r = 0; r < a.r; ++r)
              for (std::int64_t s = 0; s < a.s; ++s) {
                const std::int64_t down = h + a.pad_top - r * a.dilation_h,
                                   right = w + a.pad_left - s * a.dilation_w;
                if (down < 0 || right < 0 || down % a.stride_h != 0 || right % a.stride_w != 0) continue;
                const std::int64_t p = down / a.stride_h, q = right / a.stride_w;
                if (p >= p_size || q >= q_size) continue;
                sums[index(n, k, p, q, a.k, p_size, q_size)] +=
                    static_cast<std::int64_t>(tensors.x[index(n, c, h, w, a.c, a.h, a.w)]) *
                    static_cast<std::int64_t>(tensors.w[((k * group_c + c % group_c) * a.r + r) * a.s + s]);
              }
  std::vector<float> y(sums.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto plane = static_cast<std::int64_t>(i);
    const std::int64_t k = nchw ? plane / (p_size * q_size) % a.k : plane % a.k;
    const auto sum = static_cast<float>(sums[i]) + (a.bias ? tensors.bias[k] : 0);
    y[i] = a.activation == Activation::relu ? std::max(sum, 0.0F) : sum;
  }
  return y;
}

TEST(Reference, EqualsScatterOnRandomProblems) {
  for (std::uint64_t i = 0; i < 600; ++i) {
    const ConvProblem problem = random_problem(11, i, 1e5);
    const HostTensors tensors = small_integers(problem, i);
    const Floats expected = scatter(problem, tensors);
    ASSERT_EQ(oracle_output(problem, tensors), expected) << to_string(problem);
    ASSERT_EQ(run_reference(problem, tensors), expected) << to_string(problem);
  }
}

// Same order of the same exact products in double: the algorithm is the oracle, bit for bit.
TEST(Reference, EqualsOracleOnFractions) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const ConvProblem problem = random_problem(12, i, 1e5);
    HostTensors tensors = small_integers(problem, i);
    for (Floats* values : {&tensors.x, &tensors.w, &tensors.bias})
      for (float& value : *values) value = normal(random);
    ASSERT_EQ(run_reference(problem, tensors), oracle_output(problem, tensors)) << to_string(problem);
  }
}

TEST(Reference, AnswersForItself) {
  const Algorithm& reference = cpu::reference();
  const DeviceInfo& device = cpu::backend().info();
  ConvProblem problem{.h = 3, .w = 3};
  EXPECT_TRUE(reference.reference());
  EXPECT_FALSE(reference.vendor());
  EXPECT_TRUE(reference.supports(problem, device));
  EXPECT_EQ(reference.candidates(problem, device), std::vector<Config>{Config{}});
  EXPECT_FALSE(reference.accepts(problem, device, Config{{{"tile", 4}}}));
  EXPECT_THROW(static_cast<void>(reference.build(problem, device, Config{{{"tile", 4}}})), Error);
}

}  // namespace
}  // namespace convtune::reference_test
