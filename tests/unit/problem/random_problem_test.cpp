// The sweep's sequence: valid, bounded, the same on every machine, and as biased as it claims to be.
#include "problem/random_problem.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "convtune/cases.h"

namespace convtune::random_problem_test {
namespace {

constexpr std::uint64_t kCount = 20000;

TEST(RandomProblem, IsValidAndBounded) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 20;
  std::set<std::string> texts;
  for (std::uint64_t index = 0; index < kCount; ++index) {
    ConvProblem problem = random_problem(1, index);
    ASSERT_NO_THROW(validate(problem)) << index << ": " << to_string(problem);
    texts.insert(key(problem));
    problem.n = std::max<std::int64_t>(problem.n, 1);
    ASSERT_LE(problem.flops() / 2, 3e5) << to_string(problem);
    ASSERT_LE(problem.input_elements(), kMaxElements);
    ASSERT_LE(problem.weight_elements(), kMaxElements);
    ASSERT_LE(problem.output_elements(), kMaxElements);
  }
  EXPECT_GT(texts.size(), kCount * 99 / 100);  // hardly any twice
}

TEST(RandomProblem, HoldsOtherBoundsToo) {
  for (const double max_macs : {1e3, 1e4, 1e6, 1e7})
    for (std::uint64_t index = 0; index < 1000; ++index) {
      const ConvProblem problem = random_problem(2, index, max_macs);
      ASSERT_NO_THROW(validate(problem)) << to_string(problem);
      ASSERT_LE(problem.flops() / 2, max_macs) << to_string(problem);
    }
  for (std::uint64_t index = 0; index < 1000; ++index)  // n = c = 1, k = 3, 7x7 windows of padding
    ASSERT_LE(random_problem(2, index, 1).flops() / 2, 147);
}

TEST(RandomProblem, DependsOnSeedAndIndexAlone) {
  EXPECT_EQ(to_string(random_problem(1, 0)), "ic5ih31oc1kh4dh1 layout=nhwc");
  EXPECT_EQ(to_string(random_problem(1, 1)), "ic2ih17iw31oc1kh3kw1dh0dw2 layout=nhwc act=relu");
  EXPECT_EQ(to_string(random_problem(1, 19999)), "mb3ic77ih17oc1kh2sh2ph9dh17 act=relu");
  EXPECT_EQ(to_string(random_problem(2, 0)), "mb1ic4ih1iw43oc11kh1ph0pw2dh1 act=relu");
  EXPECT_EQ(to_string(random_problem(~std::uint64_t{0}, ~std::uint64_t{0})),
            "g2ic2ih3iw243oc32kh3sh1sw2ph2pw3dh1dw0 act=relu pad_right=0");
  EXPECT_EQ(to_string(random_problem(1, 7, 1e6)), "g2mb4ic12ih7iw32oc26kh1ph3pw0dh2dw1 layout=nhwc act=relu");
}

TEST(RandomProblem, LeansToTheEdges) {
  struct Class {
    const char* name;
    double least_percent;
    std::function<bool(const ConvProblem&)> holds;
  };
  const auto near_vector_width = [](std::int64_t extent) {
    for (const std::int64_t width : {4, 8, 16, 32, 64})
      if (extent >= width - 1 && extent <= width + 1) return true;
    return false;
  };
  const auto prime = [](std::int64_t extent) {
    for (std::int64_t factor = 2; factor * factor <= extent; ++factor)
      if (extent % factor == 0) return false;
    return extent > 6;
  };
  using P = const ConvProblem&;
  const std::vector<Class> classes = {
      {"batch 0", 1, [](P x) { return x.n == 0; }},
      {"an extent of 1", 20, [](P x) { return x.h == 1 || x.w == 1; }},
      {"one pixel", 4, [](P x) { return x.h == 1 && x.w == 1; }},
      {"one channel in", 5, [](P x) { return x.c == 1; }},
      {"one channel out", 5, [](P x) { return x.k == 1; }},
      {"output width at a vector width", 25, [&](P x) { return near_vector_width(x.q()); }},
      {"output width over 16", 15, [&](P x) { return x.q() > 16; }},
      {"channels out at a vector width", 40, [&](P x) { return near_vector_width(x.k); }},
      {"primes", 40, [&](P x) { return prime(x.c) || prime(x.k) || prime(x.h) || prime(x.w); }},
      {"pad >= filter", 20, [](P x) { return x.pad_top >= x.r || x.pad_left >= x.s; }},
      {"stride > filter", 15, [](P x) { return x.stride_h > x.r || x.stride_w > x.s; }},
      {"dilation", 20, [](P x) { return (x.dilation_h > 1 && x.r > 1) || (x.dilation_w > 1 && x.s > 1); }},
      {"one tap inside", 8,
       [](P x) {
         return (x.r > 1 && x.h > 1 && x.dilation_h >= x.h) || (x.s > 1 && x.w > 1 && x.dilation_w >= x.w);
       }},
      {"filter as large as the image", 5, [](P x) { return x.r > 1 && x.r == x.h; }},
      {"depthwise", 15, [](P x) { return x.groups > 1 && x.groups == x.c; }},
      {"channel multiplier", 4, [](P x) { return x.groups > 1 && x.groups == x.c && x.k > x.c; }},
      {"groups of several channels", 8, [](P x) { return x.groups > 1 && x.groups < x.c; }},
      {"asymmetric padding", 20, [](P x) { return x.pad_top != x.pad_bottom || x.pad_left != x.pad_right; }},
      {"1x1", 12, [](P x) { return x.r == 1 && x.s == 1; }},
      {"dense, both channel counts over 16", 4, [](P x) { return x.groups == 1 && x.c > 16 && x.k > 16; }},
      {"a third of the work bound", 10, [](P x) { return x.flops() / 2 > 1e5; }},
      {"NHWC", 20, [](P x) { return x.layout == Layout::nhwc; }},
      {"no bias", 20, [](P x) { return !x.bias; }},
      {"ReLU", 25, [](P x) { return x.activation == Activation::relu; }},
  };
  for (const Class& item : classes) {
    double count = 0;
    for (std::uint64_t index = 0; index < kCount; ++index)
      count += item.holds(random_problem(1, index)) ? 1 : 0;
    const double percent = 100 * count / static_cast<double>(kCount);
    EXPECT_GE(percent, item.least_percent) << item.name;
    EXPECT_LE(percent, 80) << item.name;  // and leaves room for the rest
  }
}

TEST(RandomProblem, LikeALayerKeepsWhatKernelsAreMadeFor) {
  for (const Suite& suite : suites())
    for (const ConvProblem& layer : suite.problems)
      for (std::uint64_t index = 0; index < 20; ++index) {
        const ConvProblem problem = random_problem_like(layer, 1, index);
        ASSERT_NO_THROW(validate(problem)) << to_string(layer) << ": " << to_string(problem);
        EXPECT_EQ(problem, random_problem_like(layer, 1, index));
        EXPECT_TRUE(problem.name.empty());
        ConvProblem same = layer;  // but for what is drawn
        same.n = problem.n, same.c = problem.c, same.d = problem.d, same.h = problem.h;
        same.w = problem.w, same.k = problem.k;
        same.groups = problem.groups, same.dtype = problem.dtype, same.layout = problem.layout;
        same.precision = problem.precision, same.direction = problem.direction, same.bias = problem.bias;
        same.residual = problem.residual, same.activation = problem.activation, same.alpha = problem.alpha;
        same.beta = problem.beta, same.rounding = problem.rounding;
        EXPECT_EQ(problem, same);
        EXPECT_EQ(problem.c / problem.groups == 1, layer.c / layer.groups == 1) << to_string(layer);
        EXPECT_EQ(problem.groups > 1, layer.groups > 1);
      }
}

}  // namespace
}  // namespace convtune::random_problem_test
