// How a search divides its seconds, on a clock that the test moves.
#include "tune/budget.h"

#include <gtest/gtest.h>

namespace convtune::budget_test {
namespace {

using Stage = Budget::Stage;

struct StandInClock {
  double seconds = 1000;  // began long before
  Budget budget(double total) {
    return Budget(total, [this] { return seconds; });
  }
};

TEST(Budget, CountsFromItsBeginning) {
  StandInClock clock;
  const Budget budget = clock.budget(20);
  EXPECT_EQ(budget.spent(), 0);
  EXPECT_EQ(budget.left(), 20);
  clock.seconds += 15;
  EXPECT_EQ(budget.spent(), 15);
  EXPECT_EQ(budget.left(), 5);
  clock.seconds += 15;
  EXPECT_EQ(budget.left(), 0);
  for (const Stage stage : {Stage::vendor, Stage::search, Stage::final, Stage::last_stage, Stage::verdict})
    EXPECT_EQ(budget.left(stage), 0);
}

TEST(Budget, AClockThatWasSetBackGivesNoTime) {
  StandInClock clock;
  const Budget budget = clock.budget(20);
  clock.seconds -= 500;
  EXPECT_EQ(budget.spent(), 0);
  EXPECT_EQ(budget.left(), 20);
}

TEST(Budget, EveryStageLeavesTheSharesOfThoseBehindIt) {
  StandInClock clock;
  Budget budget = clock.budget(20);
  EXPECT_DOUBLE_EQ(budget.left(Stage::search), 20 - 2 - 1.6);
  EXPECT_DOUBLE_EQ(budget.left(Stage::final), 18);
  EXPECT_DOUBLE_EQ(budget.left(Stage::last_stage), 18);
  EXPECT_DOUBLE_EQ(budget.left(Stage::verdict), 20);
  budget.expect_last_stage(2);
  EXPECT_DOUBLE_EQ(budget.left(Stage::search), 20 - 2 - 1.6 - 2.5);
  EXPECT_DOUBLE_EQ(budget.left(Stage::final), 18 - 2.5);
  EXPECT_DOUBLE_EQ(budget.left(Stage::last_stage), 18);
}

TEST(Budget, TheVendorHasAQuarterFromWhereItBegins) {
  StandInClock clock;
  const Budget budget = clock.budget(20);
  clock.seconds += 6;  // compiling took long
  const auto late = budget.late(Stage::vendor);
  clock.seconds += 4;
  EXPECT_FALSE(late());
  clock.seconds += 0.3;
  EXPECT_FALSE(late());
  clock.seconds += 1;
  EXPECT_TRUE(late());
  const Budget other = clock.budget(20);
  clock.seconds += 15;
  const auto soon = other.late(Stage::vendor);  // a share of 1.4 there is half
  clock.seconds += 0.6;
  EXPECT_FALSE(soon());
  clock.seconds += 0.2;
  EXPECT_TRUE(soon());
}

TEST(Budget, NothingIsKeptForALastStageThatDoesNotFit) {
  StandInClock clock;
  Budget budget = clock.budget(3);
  budget.expect_last_stage(1.5);  // 15 % are 0.45
  EXPECT_DOUBLE_EQ(budget.left(Stage::search), 3 - 0.3 - 0.24);
  clock.seconds += 2.3;
  EXPECT_FALSE(budget.last_stage_fits());
}

TEST(Budget, ALastStageTakesWhatASearchLeaves) {
  StandInClock clock;
  Budget budget = clock.budget(3);
  budget.expect_last_stage(1.5);
  clock.seconds += 1;  // few candidates: the search was soon over
  EXPECT_TRUE(budget.last_stage_fits());
  clock.seconds += 0.5;
  EXPECT_FALSE(budget.last_stage_fits());
}

TEST(Budget, MeasuringInTurnsHasAnEndHoweverMuchThereIs) {
  StandInClock clock;
  const Budget day = clock.budget(86400);
  EXPECT_DOUBLE_EQ(day.left(Stage::search), 86400 - 8);
  const auto late = day.late(Stage::final);
  clock.seconds += 3.9;
  EXPECT_FALSE(late());
  clock.seconds += 0.2;
  EXPECT_TRUE(late());
}

TEST(Budget, WhatBeginsTooLateIsLateAtOnce) {
  StandInClock clock;
  const Budget budget = clock.budget(3);
  clock.seconds += 2.6;
  const auto late = budget.late(Stage::final);  // for its 0.24 there are 0.1 left
  EXPECT_FALSE(late());
  clock.seconds += 0.11;
  EXPECT_TRUE(late());
  clock.seconds += 1;
  EXPECT_TRUE(budget.late(Stage::verdict)());
}

TEST(Budget, LongRunsAreGivenTimeForTheContest) {
  StandInClock clock;
  Budget budget = clock.budget(20);
  budget.expect_run(0.001);
  EXPECT_DOUBLE_EQ(budget.left(Stage::search), 20 - 2 - 1.6);
  budget.expect_run(0.12);  // 55 runs of it, and 15
  EXPECT_DOUBLE_EQ(budget.left(Stage::search), 20 - 6.6 - 1.8);
  budget.expect_run(10);
  EXPECT_DOUBLE_EQ(budget.left(Stage::search), 20 - 10 - 3);
}

TEST(Budget, NoBudgetIsOverAtOnce) {
  StandInClock clock;
  Budget budget = clock.budget(0);
  EXPECT_EQ(budget.left(Stage::search), 0);
  EXPECT_TRUE(budget.last_stage_fits());  // one that costs nothing
  budget.expect_last_stage(1);
  EXPECT_FALSE(budget.last_stage_fits());
}

}  // namespace
}  // namespace convtune::budget_test
