// Problems with a cache: their text, their numbers, and what they are without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "problem/rewrite.h"

namespace convtune::cache_of_frames_test {
namespace {

using testing::HasSubstr;

std::string refused(const std::string& line) {
  try {
    parse_problem(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CacheOfFrames, TakesThePlaceOfPaddingInFront) {
  const std::string line = "mb1ic3id4ih5iw5oc4kd3kh3kw3pd2ph1pw1 pad_back=0";
  const ConvProblem cached = parse_problem(line + " cache=2");
  EXPECT_EQ(cached.cache, 2);
  EXPECT_EQ(cached.z(), 4);
  EXPECT_EQ(cached.cache_elements(), 2 * 3 * 5 * 5);
  EXPECT_EQ(cached.kept_frames(), 2);
  EXPECT_EQ(cached.bytes(), parse_problem(line).bytes() + 4 * 2 * 3 * 5 * 5);
  EXPECT_EQ(parse_problem(to_string(cached)), cached);
  EXPECT_NE(parse_problem(line), cached);
  EXPECT_EQ(parse_problem(line + " cache=0"), parse_problem(line));
  EXPECT_THAT(refused(line + " cache=3"),
              HasSubstr("cache is 3; it must be at most pad_front (pd), which is 2"));
  EXPECT_THAT(refused(line + " cache=1 dir=bwd_w"), HasSubstr("a backward problem has no cache"));
  EXPECT_THAT(refused("ic3ih9oc4kh3 cache=1"), HasSubstr("at most pad_front (pd), which is 0"));
}

TEST(CacheOfFrames, StaysOrIsJoined) {
  const ConvProblem cached = parse_problem("mb1ic8id4ih6iw7oc8kd3kh1kw1pd2ph0pw0 pad_back=0 cache=1");
  EXPECT_EQ(in_plane(cached), cached);
  EXPECT_EQ(joined(cached), parse_problem("mb1ic8id5ih6iw7oc8kd3kh1kw1pd1ph0pw0 pad_back=0"));
  EXPECT_EQ(frame_runs(cached).count, 8);
  EXPECT_EQ(frame_runs(parse_problem("mb2ic8id4ih6iw7oc8kd1kh1kw1 layout=nhwc")).frame, 6 * 7 * 8);
}

}  // namespace
}  // namespace convtune::cache_of_frames_test
