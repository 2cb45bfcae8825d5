// The last stage's measurements on a simulated machine: picking the best of several must not turn noise into
// a gain, and a true one must be found.
#include "tune/stage_contest.h"

#include <gtest/gtest.h>

#include <iostream>
#include <random>

namespace convtune::stage_contest_test {
namespace {

constexpr int kContests = 1000;
constexpr double kNoise = 0.02;

// One original and what its neighbours take of its time, each sample with `noise`.
StageContest hold(std::uint64_t seed, const std::vector<double>& shares, double noise,
                  double original_us = 1000) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<std::function<double()>> samplers;
  const auto add = [&](double us) {
    samplers.emplace_back([&random, &normal, us, noise] { return us * (1 + noise * normal(random)); });
  };
  add(original_us);
  for (const double share : shares) add(share * original_us);
  return stage_contest(samplers, 0.02);
}

double accepted_share(const std::vector<double>& shares, double original_us = 1000) {
  int accepted = 0;
  for (int i = 0; i < kContests; ++i)
    accepted += hold(7919 * static_cast<std::uint64_t>(i) + 1, shares, kNoise, original_us).accepted;
  return static_cast<double>(accepted) / kContests;
}

// The slowest that is measured: there is time for few rounds.
constexpr double kSlow = 50'000;

TEST(StageContest, EqualNeighboursAreAcceptedLessThanOnceIn100) {
  for (const double us : {1000.0, kSlow}) {
    const double share = accepted_share({1, 1, 1, 1, 1}, us);
    EXPECT_LT(share, 0.01);
    std::cout << "of 1000 winners whose neighbours are equal, " << us << " us a run: " << share * kContests
              << " changed\n";
  }
}

TEST(StageContest, FivePercentAmongEqualsIsFound) {
  for (const double us : {1000.0, kSlow}) {
    const double share = accepted_share({1, 1, 0.95, 1, 1}, us);
    EXPECT_GT(share, 0.95);
    std::cout << "of 1000 winners with a neighbour that takes 5 % less, " << us
              << " us a run: " << share * kContests << " changed\n";
  }
}

TEST(StageContest, TheBestIsPickedAndProven) {
  const StageContest result = hold(1, {1.1, 0.9, 0.93}, 0.005);
  EXPECT_TRUE(result.accepted);
  EXPECT_EQ(result.best, 2u);
  EXPECT_NEAR(result.gain, 0.1, 0.01);
  ASSERT_EQ(result.in_turns.size(), 4u);
  EXPECT_NEAR(result.in_turns[1].median_us, 1100, 10);
  EXPECT_NE(result.reason.find("a second contest agrees with"), std::string::npos) << result.reason;
}

TEST(StageContest, TimesThatScatterAreNotStable) {
  const StageContest result = hold(1, {0.6, 1}, 0.05);
  EXPECT_FALSE(result.accepted);
  EXPECT_NE(result.reason.find("not stable"), std::string::npos) << result.reason;
}

TEST(StageContest, ASecondContestMayDisagree) {
  int samples = 0;  // 40 in turns, then 20 of a contest
  const auto once_fast = [&samples] { return ++samples <= 60 ? 800.0 : 1000.0; };
  const StageContest result = stage_contest({[] { return 1000.0; }, once_fast}, 0.02);
  EXPECT_FALSE(result.accepted);
  EXPECT_NE(result.reason.find("a second contest disagrees: gain 0.0 %"), std::string::npos) << result.reason;
}

TEST(StageContest, EveryContestMayBeginAfresh) {
  std::vector<std::size_t> begun;
  double us = 800;
  const StageContest result = stage_contest(
      {[] { return 1000.0; }, [] { return 900.0; }, [&us] { return us; }}, 0.02, {}, [&](std::size_t best) {
        begun.push_back(best);
        us += 5;  // another process of the same config
      });
  EXPECT_TRUE(result.accepted);
  EXPECT_EQ(begun, (std::vector<std::size_t>{2, 2}));
  EXPECT_NEAR(result.gain, 0.19, 1e-9);  // for the last
}

TEST(StageContest, Cancelled) {
  int polls = 0;
  const auto same = [] { return 1000.0; };
  const StageContest result = stage_contest({same, same}, 0.02, [&] { return ++polls > 7; });
  EXPECT_FALSE(result.accepted);
  EXPECT_TRUE(result.cancelled);
}

TEST(StageContest, LateTakesFewestRounds) {
  const StageContest result =
      stage_contest({[] { return 1000.0; }, [] { return 900.0; }}, 0.02, {}, {}, [] { return true; });
  EXPECT_EQ(result.in_turns[0].n, 5);
  EXPECT_TRUE(result.accepted) << result.reason;
}

TEST(StageContest, FortyRunsMustFit) {
  EXPECT_EQ(too_slow_for_contest(50'000), "");
  EXPECT_EQ(too_slow_for_contest(250'000), "40 runs of 250 ms would take 10.0 s, and 2 s is the most");
}

}  // namespace
}  // namespace convtune::stage_contest_test
