// The text form of random problems, there and back; and of lines that are none any more.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <regex>

#include "convtune/cases.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "problem/random_problem.h"

namespace convtune::problem_round_trip_test {
namespace {

// A small random problem with a precision and a name.
ConvProblem any_problem() {
  ConvProblem problem =
      random_problem_of_any_kind(*rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<std::uint64_t>());
  problem.precision = *rc::gen::element(Precision::automatic, Precision::fp32, Precision::tf32,
                                        Precision::fp16, Precision::bf16);
  problem.name = *rc::gen::container<std::string>(
      rc::gen::suchThat<char>([](char c) { return c != '"' && c != 0x7f && (c < 0 || c >= 0x20); }));
  problem.name.resize(std::min<std::size_t>(problem.name.size(), 2048));
  return problem;
}

RC_GTEST_PROP(RoundTrip, ProblemToTextAndBack, ()) {
  const ConvProblem problem = any_problem();
  const ConvProblem again = parse_problem(to_string(problem));
  RC_ASSERT(again == problem);
  RC_ASSERT(again.name == problem.name);
  RC_ASSERT(key(again) == key(problem));
  RC_ASSERT(parse_problem(key(problem)) == problem);
}

TEST(RoundTrip, TwentyThousandRandomProblems) {
  for (std::uint64_t index = 0; index < 20000; ++index) {
    const ConvProblem problem = random_problem_of_any_kind(7, index);
    ASSERT_EQ(to_string(parse_problem(to_string(problem))), to_string(problem));
    ASSERT_EQ(parse_problem(to_string(problem)), problem) << to_string(problem);
  }
}

// Without any one of its tokens a text means something else, or nothing: none can be left out, but for a
// default that stands for both of its pair to be said.
TEST(RoundTrip, NoTokenCanBeLeftOut) {
  const std::regex kDefault("s[hw]1|[pd][hw]0"), kDefaultOrWidth("s[hw]1|[pd][hw]0|[ik]w.*");
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const ConvProblem problem = random_problem_of_any_kind(3, index);
    const std::string text = to_string(problem);
    const bool square = problem.h == problem.w && problem.r == problem.s && !problem.has_depth();
    const std::size_t words = std::min(text.find(' '), text.size());
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin + 1;
      if (begin < words)
        end = std::min(text.find_first_not_of("0123456789", text.find_first_of("0123456789", begin)),
                       text.size());
      else
        end = std::min(text.find(' ', begin + 1), text.size());
      const std::string shorter = text.substr(0, begin) + text.substr(end);
      const std::string token = text.substr(begin, end - begin);
      begin = end;
      if (std::regex_match(token, square ? kDefaultOrWidth : kDefault)) continue;
      try {
        EXPECT_FALSE(parse_problem(shorter) == problem) << text << " can be " << shorter;
      } catch (const Error&) {  // not even a problem
      }
    }
  }
}

// Whatever happens to a line, it is a problem that survives its own text form, or an Error.
void check_survival(const std::string& text) {
  try {
    const ConvProblem problem = parse_problem(text);
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
    for (const ConvProblem& problem : suite.problems) {
      const std::string text = to_string(problem);
      for (std::size_t size = 0; size <= text.size(); ++size) check_survival(text.substr(0, size));
    }
}

}  // namespace
}  // namespace convtune::problem_round_trip_test
