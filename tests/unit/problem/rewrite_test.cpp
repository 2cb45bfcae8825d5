// A rewritten problem is the same one: every element of its result is that of the original, where it lies.
#include "problem/rewrite.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random_bits.h"
#include "cpu/reference/oracle.h"

namespace convtune::rewrite_test {
namespace {

std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(random_bits(seed, i) % 1024) / 512 - 1;
  return values;
}

void expect_same_numbers(const ConvProblem& a, const ConvProblem& b) {
  const std::vector<float> x = random_values(a.input_elements(), 1),
                           w = random_values(a.weight_elements(), 2), bias = random_values(a.k, 3),
                           residual = random_values(a.output_elements(), 4),
                           dy = random_values(a.output_elements(), 5);
  const cpu::HostValues values{x.data(), w.data(), a.bias ? bias.data() : nullptr,
                               a.residual ? residual.data() : nullptr, dy.data()};
  const std::int64_t elements = cpu::result_of(a).elements;
  ASSERT_EQ(cpu::result_of(b).elements, elements) << to_string(a) << " and " << to_string(b);
  for (std::int64_t i = 0; i < elements; ++i)
    ASSERT_EQ(cpu::oracle(a, values, i).value, cpu::oracle(b, values, i).value)
        << cpu::name_of_element(a, i) << " of " << to_string(a) << " and " << to_string(b);
}

TEST(Rewrite, AProblemInThePlaneIsTheSameInEveryDirection) {
  std::size_t rewritten = 0, kept = 0;
  for (std::uint64_t draw = 0; draw < 3000; ++draw) {
    const auto one_of = [&](std::uint64_t salt, std::uint64_t count) {
      return static_cast<std::int64_t>(random_bits(salt, draw) % count);
    };
    ConvProblem a;
    a.layout = one_of(1, 2) ? Layout::nhwc : Layout::nchw;
    a.direction = std::vector{Direction::forward, Direction::backward_data,
                              Direction::backward_weights}[static_cast<std::size_t>(one_of(2, 3))];
    a.groups = 1 + one_of(3, 2);
    a.n = 1 + one_of(4, 2), a.c = a.groups * (1 + one_of(5, 3)), a.k = a.groups * (1 + one_of(6, 3));
    a.d = 1 + one_of(7, 5), a.h = 1 + one_of(8, 4), a.w = 1 + one_of(9, 4);
    if (one_of(10, 2))
      a.t = 1 + one_of(11, 3), a.stride_d = 1 + one_of(12, 2), a.dilation_d = 1 + one_of(13, 2);
    if (one_of(14, 2)) a.r = 1 + one_of(15, 3), a.s = 1 + one_of(16, 3), a.stride_w = 1 + one_of(17, 2);
    if (one_of(18, 3) == 0) a.pad_top = a.pad_right = 1;
    if (one_of(19, 3) == 0) a.pad_front = one_of(20, 3), a.pad_back = one_of(21, 2);
    a.bias = a.residual = a.direction == Direction::forward;
    if (!a.has_depth()) a.stride_d = a.dilation_d = 1;
    if (a.z() < 1 || a.p() < 1 || a.q() < 1) continue;
    ASSERT_NO_THROW(validate(a)) << to_string(a);
    const ConvProblem plane = in_plane(a);
    ASSERT_NO_THROW(validate(plane)) << to_string(plane);
    if (plane == a) {
      kept += a.has_depth();
      continue;
    }
    ++rewritten;
    EXPECT_FALSE(plane.has_depth()) << to_string(plane);
    expect_same_numbers(a, plane);
  }
  EXPECT_GT(rewritten, 300U);
  EXPECT_GT(kept, 300U);
}

TEST(Rewrite, ModelsLayersAreRewrittenAsOneExpects) {
  const auto text = [](const char* line) { return to_string(in_plane(parse_problem(line))); };
  // Causal filters over time are filters over rows of frames.
  EXPECT_EQ(text("mb1ic96id5ih6iw7oc96kd3kh1kw1pd2ph0pw0 pad_back=0"),
            "mb1ic96ih5iw42oc96kh3kw1ph2pw0 pad_bottom=0");
  EXPECT_EQ(text("mb2ic8id4ih6iw7oc16kd1kh1kw1"), "ic8ih4iw42oc16kh1");
  // Frames are images where each lies as an image does.
  EXPECT_EQ(text("mb2ic96id5ih6iw7oc96kd1kh3kw3pd0ph1pw1 layout=nhwc"),
            "mb10ic96ih6iw7oc96kh3ph1 layout=nhwc");
  const char* const kept = "mb2ic96id5ih6iw7oc96kd1kh3kw3pd0ph1pw1";
  EXPECT_EQ(in_plane(parse_problem(kept)), parse_problem(kept));
}

}  // namespace
}  // namespace convtune::rewrite_test
