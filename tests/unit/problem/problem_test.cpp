// ConvProblem's arithmetic against brute force, and every refusal of validate().
#include "convtune/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "convtune/error.h"

namespace convtune::problem_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ConvProblem alexnet_conv1() {
  ConvProblem problem;
  problem.n = 256, problem.c = 3, problem.h = problem.w = 224;
  problem.k = 96, problem.r = problem.s = 11;
  problem.stride_h = problem.stride_w = 4;
  problem.pad_top = problem.pad_left = problem.pad_bottom = problem.pad_right = 2;
  return problem;
}

std::string refusal(const ConvProblem& problem) {
  try {
    validate(problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

// Slides the filter along the padded axis and counts where all its taps lie inside.
std::int64_t count_windows(std::int64_t size, std::int64_t filter, std::int64_t stride, std::int64_t dilation,
                           std::int64_t before, std::int64_t after) {
  std::int64_t count = 0;
  for (std::int64_t start = -before;; start += stride) {
    for (std::int64_t tap = 0; tap < filter; ++tap)
      if (start + tap * dilation >= size + after) return count;
    ++count;
  }
}

TEST(OutputSize, EqualsTheCountOfWindows) {
  std::int64_t combinations = 0;
  for (std::int64_t size = 1; size <= 12; ++size)
    for (std::int64_t filter = 1; filter <= 7; ++filter)
      for (std::int64_t stride = 1; stride <= 5; ++stride)
        for (std::int64_t dilation = 1; dilation <= 4; ++dilation)
          for (std::int64_t before = 0; before <= 4; ++before)
            for (std::int64_t after = 0; after <= 4; ++after, ++combinations)
              ASSERT_EQ(output_size(size, filter, stride, dilation, before, after),
                        count_windows(size, filter, stride, dilation, before, after))
                  << size << ' ' << filter << ' ' << stride << ' ' << dilation << ' ' << before << ' '
                  << after;
  EXPECT_EQ(combinations, 42000);
}

TEST(OutputSize, KeepsA28ImageUnderADilated3x3) {
  EXPECT_EQ(output_size(28, 3, 1, 2, 2, 2), 28);
}

TEST(OutputSize, DoesNotOverflow) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(output_size(kMax, 1, 1, 1, 0, 0), kMax);
  EXPECT_EQ(output_size(kMax, kMax, 1, kMax, 0, 0), 0);
  EXPECT_EQ(output_size(kMax, 1, kMax, kMax, kMax, kMax), 3);
}

TEST(Problem, AlexnetConv1HasItsKnownSize) {
  const ConvProblem problem = alexnet_conv1();
  validate(problem);
  EXPECT_EQ(problem.p(), 55);
  EXPECT_EQ(problem.q(), 55);
  EXPECT_EQ(problem.input_elements(), 256 * 3 * 224 * 224);
  EXPECT_EQ(problem.weight_elements(), 96 * 3 * 11 * 11);
  EXPECT_EQ(problem.output_elements(), 256 * 96 * 55 * 55);
  EXPECT_NEAR(problem.flops() / 1e9, 53.97, 0.005);
  EXPECT_EQ(problem.bytes(), 451650048);  // bytes of which input and output are 451.51 MB
}

TEST(Problem, BytesFollowTypeAndBias) {
  ConvProblem problem = alexnet_conv1();
  problem.bias = false;
  EXPECT_EQ(problem.bytes(), 451650048 - 96 * 4);
  problem.dtype = DType::bf16;
  EXPECT_EQ(problem.bytes(), (451650048 - 96 * 4) / 2);
}

// Every element that an output reads, marked; then their pixels (channels last) or sectors.
std::int64_t marked_input_elements(const ConvProblem& a) {
  const auto size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  std::vector<bool> rows(size(a.h)), columns(size(a.w));
  for (std::int64_t p = 0; p < a.p(); ++p)
    for (std::int64_t r = 0; r < a.r; ++r)
      if (const auto at = p * a.stride_h + r * a.dilation_h - a.pad_top; at >= 0 && at < a.h)
        rows[size(at)] = true;
  for (std::int64_t q = 0; q < a.q(); ++q)
    for (std::int64_t s = 0; s < a.s; ++s)
      if (const auto at = q * a.stride_w + s * a.dilation_w - a.pad_left; at >= 0 && at < a.w)
        columns[size(at)] = true;
  return a.n * a.c * std::count(rows.begin(), rows.end(), true) *
         std::count(columns.begin(), columns.end(), true);
}

TEST(Problem, CountsTheInputThatWindowsTouch) {
  ConvProblem a;
  a.n = 2, a.c = 3, a.k = 4;
  a.layout = Layout::nhwc;
  int combinations = 0, partly = 0;
  for (a.h = 1; a.h <= 13; ++a.h)
    for (a.r = 1; a.r <= 4; ++a.r)
      for (a.stride_h = 1; a.stride_h <= 6; ++a.stride_h)
        for (a.dilation_h = 1; a.dilation_h <= 5; ++a.dilation_h)
          for (a.pad_top = 0; a.pad_top <= 3; ++a.pad_top)
            for (a.pad_bottom = 0; a.pad_bottom <= 1; ++a.pad_bottom) {
              if (a.p() == 0) continue;
              // Both axes alike; and an ordinary width beside this height.
              ConvProblem both = a;
              both.w = a.h, both.s = a.r, both.stride_w = a.stride_h, both.dilation_w = a.dilation_h;
              both.pad_left = a.pad_top, both.pad_right = a.pad_bottom;
              EXPECT_EQ(both.touched_input_elements(), marked_input_elements(both)) << to_string(both);
              ++combinations, partly += marked_input_elements(both) < both.input_elements();
            }
  EXPECT_GT(combinations, 8000);
  EXPECT_GT(partly, 1000);
}

TEST(Problem, UntouchedPixelsNeedNotBeRead) {
  ConvProblem a = parse_problem("mb64ic256ih56oc512kh1sh2 dtype=bf16 layout=nhwc");
  const std::int64_t x = a.input_elements();
  EXPECT_EQ(a.touched_input_elements(), x / 4);
  EXPECT_EQ(a.bytes(), 2.0 * (x / 4 + 512 * 256 + 512 + a.output_elements()));
  a.direction = Direction::backward_weights;
  EXPECT_EQ(a.touched_input_elements(), x / 4);
  a.direction = Direction::backward_data;
  EXPECT_EQ(a.touched_input_elements(), x) << "its gradients are zero, and written";
  a.residual = true;
  EXPECT_EQ(a.bytes(), 2.0 * (2 * x + 512 * 256 + 256 + a.output_elements())) << "as large as x, as the bias";
}

TEST(Problem, ChannelsFirstAreReadInSectors) {
  ConvProblem a = parse_problem("mb64ic256ih56oc512kh1sh2 dtype=bf16 layout=nchw");
  const std::int64_t x = a.input_elements();
  EXPECT_EQ(a.touched_input_elements(), x / 2 * 55 / 56) << "the last column of every second row is left out";
  a = parse_problem("mb1ic1ih4096oc1kh1sh64 layout=nchw");  // 8 floats a sector
  EXPECT_EQ(a.touched_input_elements(), 64 * 64 * 8);
  a.stride_w = 7;
  EXPECT_EQ(a.touched_input_elements(), 64 * (585 * 7 + 1));
  a = parse_problem("mb1ic1ih4096iw4oc1kh1sh2sw1 layout=nchw");  // two rows a sector
  EXPECT_EQ(a.touched_input_elements(), 4095 * 4);
}

TEST(Problem, TouchedElementsDoNotOverflow) {
  constexpr std::int64_t kLong = std::int64_t{1} << 58;
  ConvProblem a;
  a.n = 1, a.layout = Layout::nhwc;
  a.w = kLong, a.s = kLong / 2, a.dilation_w = 2;
  validate(a);
  EXPECT_EQ(a.touched_input_elements(), kLong) << "a long filter is as good as dense";
  a.s = 3, a.dilation_w = a.stride_w = (std::int64_t{1} << 31) - 1;
  validate(a);
  EXPECT_EQ(a.touched_input_elements(), kLong / a.stride_w + 1);
}

TEST(Problem, GroupsDivideTheWork) {
  ConvProblem problem = alexnet_conv1();
  problem.c = problem.k = problem.groups = 96;
  EXPECT_EQ(problem.weight_elements(), 96 * 11 * 11);
  EXPECT_EQ(problem.flops(), 2.0 * 256 * 96 * 55 * 55 * 11 * 11);
}

TEST(Problem, EqualityHeedsEveryFieldButTheName) {
  const ConvProblem original = alexnet_conv1();
  ConvProblem renamed = original;
  renamed.name = "other";
  EXPECT_EQ(renamed, original);

  using Member = std::int64_t ConvProblem::*;
  for (const Member member :
       {&ConvProblem::n, &ConvProblem::c, &ConvProblem::h, &ConvProblem::w, &ConvProblem::k, &ConvProblem::r,
        &ConvProblem::s, &ConvProblem::groups, &ConvProblem::stride_h, &ConvProblem::stride_w,
        &ConvProblem::dilation_h, &ConvProblem::dilation_w, &ConvProblem::pad_top, &ConvProblem::pad_left,
        &ConvProblem::pad_bottom, &ConvProblem::pad_right}) {
    ConvProblem other = original;
    ++(other.*member);
    EXPECT_FALSE(other == original);
  }
  std::vector<ConvProblem> others(5, original);
  others[0].dtype = DType::f16;
  others[1].layout = Layout::nhwc;
  others[2].precision = Precision::tf32;
  others[3].activation = Activation::relu;
  others[4].bias = false;
  for (const ConvProblem& other : others) EXPECT_FALSE(other == original);
}

TEST(Validate, NamesTheFieldAndTheNumber) {
  struct Case {
    std::int64_t ConvProblem::*member;
    const char* name;
    std::int64_t low;
  };
  const Case cases[] = {
      {&ConvProblem::n, "n (mb)", 0},
      {&ConvProblem::c, "c (ic)", 1},
      {&ConvProblem::h, "h (ih)", 1},
      {&ConvProblem::w, "w (iw)", 1},
      {&ConvProblem::k, "k (oc)", 1},
      {&ConvProblem::r, "r (kh)", 1},
      {&ConvProblem::s, "s (kw)", 1},
      {&ConvProblem::groups, "groups (g)", 1},
      {&ConvProblem::stride_h, "stride_h (sh)", 1},
      {&ConvProblem::stride_w, "stride_w (sw)", 1},
      {&ConvProblem::dilation_h, "dilation_h (dh + 1)", 1},
      {&ConvProblem::dilation_w, "dilation_w (dw + 1)", 1},
      {&ConvProblem::pad_top, "pad_top (ph)", 0},
      {&ConvProblem::pad_left, "pad_left (pw)", 0},
      {&ConvProblem::pad_bottom, "pad_bottom", 0},
      {&ConvProblem::pad_right, "pad_right", 0},
  };
  for (const Case& item : cases) {
    for (const std::int64_t value : {item.low - 1, std::numeric_limits<std::int64_t>::min()}) {
      ConvProblem problem = alexnet_conv1();
      problem.*item.member = value;
      EXPECT_EQ(refusal(problem), std::string(item.name) + " is " + std::to_string(value) +
                                      "; it must be at least " + std::to_string(item.low));
    }
    ConvProblem problem = alexnet_conv1();
    problem.*item.member = std::numeric_limits<std::int64_t>::max();
    EXPECT_THAT(refusal(problem), AllOf(HasSubstr(item.name), HasSubstr("must be at most")));
  }
}

TEST(Validate, GroupsDivideBothChannelCounts) {
  ConvProblem problem = alexnet_conv1();
  problem.groups = 2;
  EXPECT_EQ(refusal(problem), "groups (g) is 2; it must divide c (ic), which is 3");
  problem.groups = 3, problem.k = 97;
  EXPECT_EQ(refusal(problem), "groups (g) is 3; it must divide k (oc), which is 97");
}

TEST(Validate, TheFilterFitsThePaddedImage) {
  ConvProblem problem = alexnet_conv1();
  problem.h = 6;
  EXPECT_EQ(refusal(problem),
            "the output has no height: r (kh) 11 at dilation_h (dh + 1) 1 spans more than h (ih) 6 + "
            "pad_top (ph) 2 + pad_bottom 2");
  problem.h = 7;
  EXPECT_EQ(refusal(problem), "accepted");
  problem.dilation_w = 23;  // 10*23 + 1 = 231 over 224 + 4
  EXPECT_THAT(refusal(problem), AllOf(HasSubstr("no width"), HasSubstr("dilation_w (dw + 1) 23")));
}

TEST(Validate, BatchZeroIsFine) {
  ConvProblem problem = alexnet_conv1();
  problem.n = 0;
  EXPECT_EQ(refusal(problem), "accepted");
  EXPECT_EQ(problem.output_elements(), 0);
  EXPECT_EQ(problem.flops(), 0);
}

TEST(Validate, TensorsStopAt2To62Bytes) {
  ConvProblem problem;  // 1x1, f32
  problem.h = problem.w = std::int64_t{1} << 30;
  EXPECT_EQ(refusal(problem), "accepted");
  EXPECT_EQ(problem.input_elements(), std::int64_t{1} << 60);
  EXPECT_EQ(problem.output_elements(), std::int64_t{1} << 60);
  problem.w += 1;
  EXPECT_EQ(
      refusal(problem),
      "the input is too large: n*c*d*h*w = 1*1*1*1073741824*1073741825 elements of 4 bytes are more than "
      "2^62 bytes");
  problem.dtype = DType::f16;
  EXPECT_EQ(refusal(problem), "accepted");
  problem.w = std::int64_t{1} << 40;
  EXPECT_THAT(refusal(problem), HasSubstr("the input is too large"));
  problem.n = 0;  // one image is still too large
  EXPECT_THAT(refusal(problem), HasSubstr("the input is too large"));

  ConvProblem filter;
  filter.c = filter.k = std::int64_t{1} << 31;
  EXPECT_THAT(refusal(filter), HasSubstr("the filter is too large: k*(c/groups)*t*r*s"));
  filter.groups = filter.c;
  EXPECT_EQ(refusal(filter), "accepted");

  ConvProblem output;
  output.h = output.w = std::int64_t{1} << 20;
  output.k = (std::int64_t{1} << 20) + 1;
  EXPECT_THAT(refusal(output), HasSubstr("the output is too large: n*k*z*p*q"));
  output.k -= 1;
  EXPECT_EQ(refusal(output), "accepted");
}

TEST(Validate, StepsStayBelow2To31) {
  ConvProblem problem;
  problem.stride_h = problem.dilation_w = (std::int64_t{1} << 31) - 1;
  EXPECT_EQ(refusal(problem), "accepted");
  problem.stride_h += 1;
  EXPECT_EQ(refusal(problem), "stride_h (sh) is 2147483648; it must be at most 2147483647");
}

TEST(Validate, NamesCanBeQuoted) {
  ConvProblem problem;
  problem.name = "größer # than_1";
  EXPECT_EQ(refusal(problem), "accepted");
  problem.name = "a\"b";
  EXPECT_THAT(refusal(problem), HasSubstr("double quote"));
  problem.name = "a\nb";
  EXPECT_THAT(refusal(problem), HasSubstr("'a\\x0ab'"));
  problem.name = std::string(2049, 'a');
  EXPECT_EQ(refusal(problem), "the name is 2049 bytes long; it must be at most 2048");
}

}  // namespace
}  // namespace convtune::problem_test
