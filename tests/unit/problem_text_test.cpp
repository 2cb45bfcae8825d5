// The text form of Conv2dProblem: grammar, defaults, every refusal, and the round trip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "convtune/cases.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "random_problem.h"

namespace convtune {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    return "accepted as " + to_string(parse_problem(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
}

TEST(ParseProblem, ReadsTheExampleOfTheHeader) {
  const Conv2dProblem problem =
      parse_problem("mb256ic3ih224oc96oh55kh11sh4ph2n\"alexnet_conv1\" precision=tf32 act=relu");
  Conv2dProblem expected;
  expected.n = 256, expected.c = 3, expected.h = expected.w = 224;
  expected.k = 96, expected.r = expected.s = 11;
  expected.stride_h = expected.stride_w = 4;
  expected.pad_top = expected.pad_left = expected.pad_bottom = expected.pad_right = 2;
  expected.precision = Precision::tf32;
  expected.activation = Activation::relu;
  EXPECT_EQ(problem, expected);
  EXPECT_EQ(problem.name, "alexnet_conv1");
}

TEST(ParseProblem, LeavesOutWhatBenchdnnLeavesOut) {
  const Conv2dProblem problem = parse_problem("ic3ih5oc4kh3");
  Conv2dProblem expected;
  expected.n = 2, expected.c = 3, expected.h = expected.w = 5, expected.k = 4, expected.r = expected.s = 3;
  EXPECT_EQ(problem, expected);
  EXPECT_EQ(problem.name, "");
  EXPECT_TRUE(problem.bias);
}

TEST(ParseProblem, HeightsAndWidthsStandInForEachOther) {
  const Conv2dProblem square = parse_problem("ic3ih9iw9oc4kh3kw3sh2sw2ph1pw1dh1dw1oh4ow4");
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3sh2ph1dh1oh4"), square);
  EXPECT_EQ(parse_problem("ic3iw9oc4kw3sw2pw1dw1ow4"), square);
  const Conv2dProblem oblong = parse_problem("ic3ih9iw11oc4kh3kw5sh2sw3ph1pw2dh1dw0oh4ow4");
  EXPECT_EQ(oblong.w, 11);
  EXPECT_EQ(oblong.s, 5);
  EXPECT_EQ(oblong.stride_w, 3);
  EXPECT_EQ(oblong.pad_left, 2);
  EXPECT_EQ(oblong.dilation_h, 2);
  EXPECT_EQ(oblong.dilation_w, 1);
}

TEST(ParseProblem, TakesAnyOrderUnderscoresAndBlanks) {
  const Conv2dProblem problem = parse_problem("g2mb3ic4ih9oc6kh3ph1n\"x\" act=relu bias=0");
  EXPECT_EQ(parse_problem("ph1_kh3n\"x\"oc6_ih9_ic4_mb3_g2 bias=0 act=relu"), problem);
  EXPECT_EQ(parse_problem(" \t__g2__mb3ic4ih9oc6kh3ph1n\"x\"_  act=relu\tbias=0 \r\n"), problem);
}

TEST(ParseProblem, ReadsEveryWord) {
  const Conv2dProblem problem = parse_problem(
      "ic3ih9iw10oc4kh3ph1 pad_bottom=0 pad_right=2 dtype=bf16 layout=nhwc precision=fp16 act=relu bias=0");
  EXPECT_EQ(problem.pad_top, 1);
  EXPECT_EQ(problem.pad_left, 1);
  EXPECT_EQ(problem.pad_bottom, 0);
  EXPECT_EQ(problem.pad_right, 2);
  EXPECT_EQ(problem.dtype, DType::bf16);
  EXPECT_EQ(problem.layout, Layout::nhwc);
  EXPECT_EQ(problem.precision, Precision::fp16);
  EXPECT_EQ(problem.activation, Activation::relu);
  EXPECT_FALSE(problem.bias);
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3 precision=auto layout=nchw dtype=f32 act=none bias=1"),
            parse_problem("ic3ih9oc4kh3"));
}

TEST(ParseProblem, KeepsBlanksAndSignsInAName) {
  EXPECT_EQ(parse_problem("ic3ih9n\"two words_ic7=#\"oc4kh3").name, "two words_ic7=#");
  EXPECT_EQ(parse_problem("ic3ih9oc4kh3n\"\"").name, "");
}

TEST(ParseProblem, NamesPlaceAndToken) {
  EXPECT_EQ(
      refusal("mb1ic3zz7oc4"),
      "problem 'mb1ic3zz7oc4': column 7: 'zz' is none of mb g ic ih iw oc oh ow kh kw sh sw ph pw dh dw "
      "n\"name\"");
  EXPECT_THAT(refusal("mb1ic3=7"), HasSubstr("column 7: '=' is none of mb g"));
  EXPECT_THAT(refusal("MB1"), HasSubstr("column 1: 'MB' is none of"));
  EXPECT_THAT(refusal("7"), HasSubstr("column 1: '7' is none of"));
  EXPECT_THAT(refusal("mb1\x01"), HasSubstr("column 4: '\\x01' is none of"));
  EXPECT_THAT(refusal("mb"), HasSubstr("column 1: 'mb' needs a whole number, not ''"));
  EXPECT_THAT(refusal("mb1ph-1"), HasSubstr("column 4: 'ph' needs a whole number, not '-'"));
  EXPECT_THAT(refusal("mb1ic3mb2"), HasSubstr("column 7: 'mb' is given twice"));
  EXPECT_THAT(refusal("mb1ic3n\"a\"n\"b\""), HasSubstr("column 11: a second name"));
  EXPECT_THAT(refusal("mb1n\"abc ih3"), HasSubstr("column 4: the name has no closing '\"'"));
  EXPECT_THAT(refusal("n1ic3"),
              HasSubstr("column 1: 'n' starts a name, as in n\"conv1\"; the batch is 'mb'"));
  EXPECT_THAT(refusal("ic3n"), HasSubstr("column 4: 'n' starts a name"));
}

TEST(ParseProblem, RefusesNumbersPastInt64) {
  EXPECT_THAT(refusal("ic9223372036854775808ih3oc1kh1"),
              HasSubstr("column 1: '9223372036854775808' is over 2^63 - 1"));
  EXPECT_THAT(refusal("ic9223372036854775807ih3oc1kh1"), HasSubstr("c (ic) is 9223372036854775807"));
  EXPECT_THAT(refusal("ic1ih3oc1kh1dh9223372036854775807"), HasSubstr("dh is too large"));
  EXPECT_THAT(refusal("ic1ih3oc1kh1dh9223372036854775806"), HasSubstr("dilation_h (dh + 1) is"));
  EXPECT_THAT(refusal("ic1ih3oc1kh1 pad_right=99999999999999999999"), HasSubstr("is over 2^63 - 1"));
}

TEST(ParseProblem, RefusesThreeDimensions) {
  for (const std::string letters : {"id", "od", "kd", "sd", "pd", "dd"})
    EXPECT_THAT(refusal("mb1ic3" + letters + "5ih5oc4kh3"),
                HasSubstr("column 7: '" + letters + "' belongs to 3-D convolutions"));
}

TEST(ParseProblem, RefusesBadWords) {
  const std::string line = "ic3ih9oc4kh3";
  EXPECT_THAT(refusal(line + " junk"), HasSubstr("column 14: after a blank comes key=value, not 'junk'"));
  EXPECT_THAT(refusal(line + " mb4"), HasSubstr("not 'mb4'"));
  EXPECT_THAT(refusal(line + " color=red"),
              HasSubstr("column 14: 'color' is none of the keys precision layout dtype act bias pad_bottom "
                        "pad_right"));
  EXPECT_THAT(refusal(line + " bias=1 bias=1"), HasSubstr("column 21: 'bias' is given twice"));
  EXPECT_THAT(refusal(line + " bias=2"), HasSubstr("column 14: bias is 0 or 1, not '2'"));
  EXPECT_THAT(refusal(line + " precision=fp8"),
              HasSubstr("column 14: precision 'fp8' is not one of auto, fp32, tf32, fp16, bf16"));
  EXPECT_THAT(refusal(line + " layout=chwn"), HasSubstr("layout 'chwn' is not one of nchw, nhwc"));
  EXPECT_THAT(refusal(line + " dtype=f64"), HasSubstr("dtype 'f64' is not one of f32, f16, bf16"));
  EXPECT_THAT(refusal(line + " act=gelu"), HasSubstr("act 'gelu' is not one of none, relu"));
  EXPECT_THAT(refusal(line + " pad_bottom=-1"), HasSubstr("pad_bottom needs a whole number, not '-1'"));
  EXPECT_THAT(refusal(line + " pad_bottom=1x"), HasSubstr("pad_bottom needs a whole number, not '1x'"));
  EXPECT_THAT(refusal(line + " pad_right="), HasSubstr("pad_right needs a whole number, not ''"));
}

TEST(ParseProblem, RefusesWhatIsMissing) {
  EXPECT_THAT(refusal(""), EndsWith("ic is missing, and has no default"));
  EXPECT_THAT(refusal("ih5oc4kh3"), EndsWith("ic is missing, and has no default"));
  EXPECT_THAT(refusal("ic5ih4kh3"), EndsWith("oc is missing, and has no default"));
  EXPECT_THAT(refusal("ic5oc4kh3"), EndsWith("ih is missing, and has no default"));
  EXPECT_THAT(refusal("ic5ih5oc4"), EndsWith("kh is missing, and has no default"));
}

TEST(ParseProblem, ChecksTheOutputSizeThatIsStated) {
  EXPECT_THAT(refusal("mb1ic3ih8oc4oh4kh3sh2"),
              AllOf(HasSubstr("column 13: oh4 is stated, but the other numbers give oh3"),
                    HasSubstr("add pad_bottom=N")));
  EXPECT_EQ(parse_problem("mb1ic3ih8oc4oh4kh3sh2 pad_bottom=1 pad_right=1").p(), 4);
  EXPECT_THAT(refusal("mb1ic3ih8oc4oh3ow4kh3sh2"),
              AllOf(HasSubstr("column 16: ow4 is stated, but the other numbers give ow3"),
                    HasSubstr("add pad_right=N")));
  EXPECT_THAT(refusal("mb1ic3ih8iw9oc4oh6kh3"),
              HasSubstr("column 16: ow6 is stated by oh, but the other numbers give ow7"));
}

TEST(ParseProblem, RefusesWhatValidateRefuses) {
  EXPECT_THAT(refusal("g2ic3ih8oc4kh3"), HasSubstr("groups (g) is 2; it must divide c (ic), which is 3"));
  EXPECT_THAT(refusal("ic3ih2oc4kh3"), HasSubstr("the output has no height"));
  EXPECT_THAT(refusal("ic3ih2oc0kh1"), HasSubstr("k (oc) is 0"));
  EXPECT_THAT(refusal("ic3ih2oc3kh1n\"a\tb\""), HasSubstr("control character"));
}

TEST(ParseProblem, RefusesMoreThan4096Bytes) {
  const std::string line = "ic3ih9oc4kh3";
  EXPECT_EQ(parse_problem(line + std::string(4096 - line.size(), '_')), parse_problem(line));
  EXPECT_THAT(refusal(line + std::string(4097 - line.size(), '_')),
              HasSubstr("4097 bytes are more than the limit of 4096"));
}

TEST(ToString, SaysNothingTwice) {
  EXPECT_EQ(to_string(parse_problem("g1mb2ic3ih5iw5oc4oh3kh3kw3sh1sw1ph0pw0dh0dw0 bias=1")), "ic3ih5oc4kh3");
  EXPECT_EQ(to_string(parse_problem("mb256ic3ih224oc96oh55kh11sh4ph2n\"alexnet_conv1\"")),
            "mb256ic3ih224oc96kh11sh4ph2n\"alexnet_conv1\"");
  EXPECT_EQ(to_string(parse_problem("ic3ih5oc4kh3sh1sw2 act=relu layout=nhwc pad_right=1 bias=0 dtype=f16 "
                                    "precision=fp32 pad_bottom=0")),
            "ic3ih5oc4kh3sh1sw2 precision=fp32 layout=nhwc dtype=f16 act=relu bias=0 pad_right=1");
}

TEST(Key, HasNoName) {
  const Conv2dProblem problem = parse_problem("ic3ih5oc4kh3n\"x\" act=relu");
  EXPECT_EQ(key(problem), "ic3ih5oc4kh3 act=relu");
  EXPECT_EQ(parse_problem(key(problem)), problem);
}

TEST(ToString, TheLongestStillFits) {
  Conv2dProblem problem;
  problem.n = problem.c = problem.k = problem.h = problem.w = 999;
  problem.stride_h = problem.stride_w = problem.dilation_h = problem.dilation_w = 2147483647;
  problem.stride_w = problem.dilation_w = problem.pad_top = 2147483646;
  problem.name = std::string(256, 'x');
  const Conv2dProblem again = parse_problem(to_string(problem));
  EXPECT_EQ(again, problem);
  EXPECT_EQ(again.name, problem.name);
}

// A small random problem with the fields that random_problem leaves alone set too.
Conv2dProblem any_problem() {
  Conv2dProblem problem =
      random_problem(*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<std::uint64_t>());
  problem.dtype = *rc::gen::element(DType::f32, DType::f16, DType::bf16);
  problem.precision = *rc::gen::element(Precision::automatic, Precision::fp32, Precision::tf32,
                                        Precision::fp16, Precision::bf16);
  problem.name = *rc::gen::container<std::string>(
      rc::gen::suchThat<char>([](char c) { return c != '"' && c != 0x7f && (c < 0 || c >= 0x20); }));
  problem.name.resize(std::min<std::size_t>(problem.name.size(), 256));
  return problem;
}

RC_GTEST_PROP(RoundTrip, ProblemToTextAndBack, ()) {
  const Conv2dProblem problem = any_problem();
  const Conv2dProblem again = parse_problem(to_string(problem));
  RC_ASSERT(again == problem);
  RC_ASSERT(again.name == problem.name);
  RC_ASSERT(key(again) == key(problem));
  RC_ASSERT(parse_problem(key(problem)) == problem);
}

TEST(RoundTrip, TwentyThousandRandomProblems) {
  for (std::uint64_t index = 0; index < 20000; ++index) {
    const Conv2dProblem problem = random_problem(7, index);
    ASSERT_EQ(to_string(parse_problem(to_string(problem))), to_string(problem));
    ASSERT_EQ(parse_problem(to_string(problem)), problem) << to_string(problem);
  }
}

// Without any one of its tokens a text means something else, or nothing: none can be left out.
TEST(RoundTrip, NoTokenCanBeLeftOut) {
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const Conv2dProblem problem = random_problem(3, index);
    const std::string text = to_string(problem);
    const std::size_t words = std::min(text.find(' '), text.size());
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin + 1;
      if (begin < words)
        end = std::min(text.find_first_not_of("0123456789", text.find_first_of("0123456789", begin)),
                       text.size());
      else
        end = std::min(text.find(' ', begin + 1), text.size());
      const std::string shorter = text.substr(0, begin) + text.substr(end);
      try {
        EXPECT_FALSE(parse_problem(shorter) == problem) << text << " can be " << shorter;
      } catch (const Error&) {  // not even a problem
      }
      begin = end;
    }
  }
}

// Whatever happens to a line, it is a problem that survives its own text form, or an Error.
void check_survival(const std::string& text) {
  try {
    const Conv2dProblem problem = parse_problem(text);
    RC_ASSERT(parse_problem(to_string(problem)) == problem);
    RC_ASSERT(problem.p() >= 1);
    RC_ASSERT(problem.q() >= 1);
    RC_ASSERT(problem.flops() >= 0);
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::invalid_argument);
    RC_ASSERT(std::string(error.what()).size() < 1000u);
  }
}

RC_GTEST_PROP(Mutation, ParsesOrRefuses, ()) {
  static const std::string kPieces[] = {
      "\"", "n\"", "=",  " ",  "_",  "-",  "0",           "9999999999", "99999999999999999999",
      "mb", "g",   "ih", "oh", "kd", "dh", "pad_bottom=", "act=relu",   "\xff",
      "\n"};
  std::string text = to_string(any_problem());
  const int mutations = *rc::gen::inRange(1, 6);
  for (int i = 0; i < mutations; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size() + 1);
    const auto length = std::min(*rc::gen::inRange<std::size_t>(0, 6), text.size() - at);
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at,
                    *rc::gen::elementOf(std::vector<std::string>(std::begin(kPieces), std::end(kPieces))));
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.replace(at, length, 1, *rc::gen::arbitrary<char>());
        break;
    }
  }
  check_survival(text);
}

RC_GTEST_PROP(Mutation, AnyBytesParseOrAreRefused, (const std::string& text)) {
  check_survival(text);
}

TEST(Mutation, EveryTruncationOfEveryCaseParsesOrIsRefused) {
  for (const Suite& suite : suites())
    for (const Conv2dProblem& problem : suite.problems) {
      const std::string text = to_string(problem);
      for (std::size_t size = 0; size <= text.size(); ++size) check_survival(text.substr(0, size));
    }
}

}  // namespace
}  // namespace convtune
