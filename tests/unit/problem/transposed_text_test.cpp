// The text form of transposed layers, in their own sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convtune/error.h"
#include "convtune/problem.h"

namespace convtune::transposed_text_test {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text) {
  try {
    return "accepted as " + to_string(parse_problem(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
}

TEST(ParseProblem, ReadsTransposedLayersAsTheirOwnersWriteThem) {
  const auto same = [](const std::string& layer, const std::string& forward) {
    EXPECT_EQ(to_string(parse_problem(layer + " dir=transposed")), forward) << layer;
  };
  same("mb1ic64ih32oc16kh4sh2ph1", "mb1ic16ih64oc64kh4sh2ph1 dir=bwd_d bias=1");
  same("mb1ic64ih32oc16kh2sh2", "mb1ic16ih64oc64kh2sh2 dir=bwd_d bias=1");
  // A stated output may be larger by an output padding; without a padding of the line's it has one derived.
  same("mb1ic64ih32oc16oh64kh3sh2ph1", "mb1ic16ih64oc64kh3sh2ph1 dir=bwd_d bias=1");
  same("mb1ic64ih32oc16oh64kh4sh2", "mb1ic16ih64oc64kh4sh2ph1 dir=bwd_d bias=1");
  same("mb1g4ic64ih5iw7oc16kh3kw5dh1dw0", "g4mb1ic16ih9iw11oc64kh3kw5dh1dw0 dir=bwd_d bias=1");
  same("mb1ic512iw50oc256kw16sw8pw4", "mb1ic256ih1iw400oc512kh1kw16sh1sw8ph0pw4 dir=bwd_d bias=1");
  same("mb1ic32id4oc16kd2sd2", "mb1ic16id8ih8iw8oc32kd2kh2kw2sd2sh2sw2 dir=bwd_d bias=1");
  same("mb1ic8ih5oc4kh3 pad_bottom=2 pad_right=2",
       "mb1ic4ih5oc8kh3 dir=bwd_d bias=1 pad_bottom=2 pad_right=2");
  const ConvProblem silu = parse_problem("mb1ic8ih5oc4kh3 dir=transposed bias=0 act=silu residual=1");
  EXPECT_FALSE(silu.bias);
  EXPECT_EQ(silu.bias_elements(), 4);
  EXPECT_EQ(silu.result_elements(), 4 * 7 * 7);
  EXPECT_EQ(parse_problem(to_string(silu)), silu);
  EXPECT_THAT(refusal("mb1ic8oh9oc4kh3 dir=transposed"), HasSubstr("ih is missing"));
  EXPECT_THAT(refusal("mb1ic8ih5oc4oh13kh3sh2ph1 dir=transposed"),
              HasSubstr("ih5 is stated, but the other numbers give ih6"));
  EXPECT_THAT(refusal("mb1ic8ih2oc4kh3ph2 dir=transposed"),
              HasSubstr("its padding of 2 + 2 takes all of it"));
  EXPECT_THAT(refusal("mb1ic8ih2oc4kh3kw5 dir=transposed"), HasSubstr("iw is missing"));
}

}  // namespace
}  // namespace convtune::transposed_text_test
