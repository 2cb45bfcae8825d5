// The direct stem kernel on an H100: exact on integers, strict about NaN, infinities and padding, the same
// bits in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convtune/cases.h"
#include "cuda/direct_stem_sm90.h"
#include "kernel_test.h"
#include "random_bits.h"

namespace convtune {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

constexpr float kHuge = std::numeric_limits<float>::max();  // as TF32 it is infinite

class DirectStem : public KernelTest {
 protected:
  DirectStem()
      : KernelTest(cuda::direct_stem_sm90(), "sm_90a",
                   [](const Conv2dProblem& problem, const Config& config, const std::string& isa) {
                     return cuda::direct_stem_sm90_job(cuda::direct_stem_sm90_kernel(problem, config), isa);
                   }) {}
  const Algorithm& stem() { return algorithm(); }
};

Conv2dProblem random_stem(std::uint64_t index) {
  std::uint64_t position = 0;
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_bits(index, position++) %
                                           static_cast<std::uint64_t>(high - low + 1));
  };
  Conv2dProblem a;
  a.n = pick(1, 3), a.c = pick(1, 4), a.k = pick(1, 140), a.r = pick(1, 11), a.s = pick(1, 11);
  a.stride_h = pick(1, 5), a.stride_w = 4;
  a.pad_top = pick(0, a.r), a.pad_bottom = pick(0, a.r), a.pad_left = pick(0, a.s),
  a.pad_right = pick(0, a.s);
  a.h = pick(a.r, 40), a.w = pick(32 + a.s, index % 4 == 0 ? 600 : 260);
  if (index % 2 == 0) a.w = (a.w + 3) / 4 * 4;  // bulk copies
  a.bias = pick(0, 3) > 0;
  a.activation = pick(0, 1) == 1 ? Activation::relu : Activation::none;
  a.precision = Precision::tf32;
  return a;
}

TEST_F(DirectStem, IsExactOnTheStemSuite) {
  std::vector<Conv2dProblem> problems;
  for (Conv2dProblem problem : load_suite("stem")) {
    if (problem.stride_w != 4) continue;
    problem.n = 2;
    problem.precision = Precision::tf32;
    problems.push_back(problem);
  }
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_EQ(refused_, 0);
  for (const Case& one : cases) {
    Testbed bed(one.problem, gpu(), TestData::integer, 5, 3000);
    EXPECT_EQ(bed.check(*stem().build(one.problem, device(), one.config)).failure, "")
        << to_string(one.problem) << " with " << to_string(one.config);
  }
}

TEST_F(DirectStem, IsExactOnRandomProblems) {
  std::vector<Conv2dProblem> problems;
  for (std::uint64_t i = 0; i < 60; ++i) problems.push_back(random_stem(i));
  const std::vector<Case> cases = cases_of(problems);
  EXPECT_LT(refused_, 15);
  for (const Case& one : cases) {
    Testbed bed(one.problem, gpu(), TestData::integer, 6, 2000);
    EXPECT_EQ(bed.check(*stem().build(one.problem, device(), one.config)).failure, "")
        << to_string(one.problem) << " with " << to_string(one.config);
  }
}

const char* const kStrictProblems[] = {
    "mb2ic3ih21iw37oc20kh5kw3sh2sw4ph2pw1 precision=tf32 act=relu",
    "mb2ic2ih17iw61oc16kh3kw6sh1sw4ph2 precision=tf32",
    "mb3ic3ih14iw64oc40kh3sh4ph1 precision=tf32 bias=0 act=relu",
};

TEST_F(DirectStem, SpreadsNanAndInfinityNoFurtherThanTheSumsReach) {
  std::vector<Conv2dProblem> problems;
  for (const char* text : kStrictProblems) problems.push_back(parse_problem(text));
  for (const Case& one : cases_of(problems)) {
    const Conv2dProblem& a = one.problem;
    const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
               bias = integers(a.k, 3);
    for (const float bad : {kNan, kInf, -kInf, kHuge}) {
      for (int where = 0; where < 3; ++where) {
        auto bad_x = x, bad_w = w, bad_bias = bias;
        auto& values = where == 0 ? bad_x : where == 1 ? bad_w : bad_bias;
        values[values.size() / 3] = bad;
        values[values.size() - 1] = bad;
        // Products by 1 and nothing added: exact in spite of its size.
        if (bad == kHuge && where < 2) {
          auto& others = where == 0 ? bad_w : bad_x;
          for (float& other : others) other = other > 0 ? 1.0f : 0.0f;
          std::fill(values.begin(), values.end(), 0.0f);
          values[values.size() / 3] = bad;
          std::fill(bad_bias.begin(), bad_bias.end(), 0.0f);
        }
        EXPECT_EQ(difference(a, bad_x, bad_w, bad_bias, run(one, bad_x, bad_w, bad_bias)), "")
            << to_string(a) << " with " << to_string(one.config) << ", " << bad << " in tensor " << where;
      }
    }
  }
}

TEST_F(DirectStem, TakesBadlyAlignedPointers) {
  std::vector<Conv2dProblem> problems;
  for (const char* text : kStrictProblems) problems.push_back(parse_problem(text));
  // Where x and y are aligned, bulk copies and boxes.
  for (const char* text :
       {"mb1ic3ih16iw64oc16kh3sh4ph1", "mb2ic2ih20iw44oc8kh5sh4ph2", "mb2ic3ih16iw48oc16kh4sh4"})
    problems.push_back(parse_problem(text + std::string(" precision=tf32")));
  for (const Case& one : cases_of(problems)) {
    const Conv2dProblem& a = one.problem;
    const auto x = integers(a.input_elements(), 1), w = integers(a.weight_elements(), 2),
               bias = integers(a.k, 3);
    for (const std::size_t shift : {0, 1, 2, 4})
      EXPECT_EQ(difference(a, x, w, bias, run(one, x, w, bias, shift)), "")
          << to_string(a) << " with " << to_string(one.config) << ", " << shift << " floats off";
  }
}

TEST_F(DirectStem, CountsMoreOutputsThanAnIntCan) {
  const Conv2dProblem problem = parse_problem("mb700ic1ih896oc64kh3sh4ph1 precision=tf32");
  ASSERT_GT(problem.output_elements(), std::int64_t{1} << 31);
  Testbed bed(problem, gpu(), TestData::integer, 8, 3000);  // of which the last outputs are some
  const Config config = stem().candidates(problem, device()).front();
  EXPECT_EQ(bed.check(*stem().build(problem, device(), config)).failure, "");
}

TEST_F(DirectStem, GivesTheSameBitsEveryTime) {
  for (const char* name : {"alexnet_conv1", "convnext_patchify"}) {
    Conv2dProblem problem = find_problem(name);
    problem.n = 32;
    problem.precision = Precision::tf32;
    const Case one{problem, stem().candidates(problem, device()).front()};
    std::vector<float> x(static_cast<std::size_t>(problem.input_elements())),
        w(static_cast<std::size_t>(problem.weight_elements())), bias(static_cast<std::size_t>(problem.k));
    for (auto* values : {&x, &w, &bias})
      for (std::size_t i = 0; i < values->size(); ++i)
        (*values)[i] = static_cast<float>(random_bits(11, i) >> 40) * 0x1p-23f - 1;
    const std::vector<float> first = run(one, x, w, bias);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(run(one, x, w, bias), first) << name;
  }
}

}  // namespace
}  // namespace convtune
