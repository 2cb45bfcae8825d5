// When runs of oneDNN's plans have one thread, by times that are told.
#include "cpu/onednn/onednn_patience.h"

#include <gtest/gtest.h>

#include <chrono>

namespace convtune::onednn_patience_test {
namespace {

using namespace std::chrono_literals;
using Duration = cpu::OnednnPatience::Clock::duration;

// A thread on which runs follow each other, of plans on two threads.
class OnednnPatience : public testing::Test {
 protected:
  void run(Duration took) {
    patience.ran_on_all(runs, now, now + took);
    now += took;
  }
  void run_alone(Duration took) {
    patience.ran_alone(runs, now, now + took);
    now += took;
  }
  bool leaves() { return patience.leaves_team(runs, now); }
  // How many runs have one thread from here on.
  int left() {
    int count = 0;
    while (count < 10'000 && leaves()) ++count;
    return count;
  }
  // Behind a few runs on time: one thread takes 2 ms.
  void SetUp() override {
    run_alone(2ms);
    for (int i = 0; i < 40; ++i) run(1ms);
  }

  cpu::OnednnPatience patience;
  cpu::OnednnPatience::Runs runs{.threads = 2};
  cpu::OnednnPatience::Clock::time_point now{1h};
};

constexpr Duration kLate = 2ms + cpu::TeamPatience::kLate;

TEST_F(OnednnPatience, LeavesATeamThatIsLateTwice) {
  EXPECT_EQ(left(), 0);
  run(kLate - 1ns);
  run(kLate - 1ns);
  EXPECT_EQ(left(), 0) << "on time";
  run(kLate);
  EXPECT_EQ(left(), 0) << "once";
  run(1ms);
  run(kLate);
  EXPECT_EQ(left(), 0) << "once again";
  run(kLate);
  EXPECT_EQ(left(), 16);
}

TEST_F(OnednnPatience, OneLateRunIsEnoughBehindRunsOnOneThread) {
  run(kLate);
  run(kLate);
  EXPECT_EQ(left(), 16);
  run(kLate);
  EXPECT_EQ(left(), 32);
  run(1ms);
  run(kLate);
  EXPECT_EQ(left(), 0) << "a run was on time";
}

// Threads fall asleep while runs have one, and some 100 us go by until they are awake.
TEST_F(OnednnPatience, ThreadsThatWakeAreNotLate) {
  run(kLate);
  run_alone(2ms);
  run(kLate);
  EXPECT_EQ(left(), 0) << "it woke its threads";
  run(kLate);
  EXPECT_EQ(left(), 16);
  run_alone(2ms);
  run(kLate + 800us);
  EXPECT_EQ(left(), 0) << "it woke its threads";
  run(kLate);
  EXPECT_EQ(left(), 32) << "the next tries the team";
  run_alone(2ms);
  run(2ms + 1ms);
  EXPECT_EQ(left(), 64) << "nobody wakes so slowly";
}

TEST_F(OnednnPatience, TriesTheTeamAgainAfterAThirdOfASecond) {
  run(kLate);
  run(kLate);
  now += 299ms;
  EXPECT_TRUE(leaves());
  now += 1ms;
  EXPECT_FALSE(leaves());
  EXPECT_EQ(left(), 0);
  run(1ms);
  EXPECT_EQ(left(), 0);
}

// The first run makes things, and threads fall asleep in a pause.
TEST_F(OnednnPatience, FirstRunsAndThoseBehindAPauseSayNothing) {
  for (int i = 0; i < 4; ++i) {
    now += 20ms;
    run(kLate);
  }
  EXPECT_EQ(left(), 0);
  for (int i = 0; i < 4; ++i) {
    runs = {.threads = 2};
    run(100ms);
  }
  EXPECT_EQ(left(), 0);
}

// On a busy machine all runs of a team may be late: what one thread takes is found out.
TEST_F(OnednnPatience, ALongRunIsFollowedByOneThatTells) {
  runs = {.threads = 2};
  run(8ms);
  EXPECT_FALSE(leaves()) << "the first says nothing";
  run(8ms);
  EXPECT_TRUE(leaves());
  run_alone(2ms);
  EXPECT_FALSE(leaves());
  run(8ms);
  run(8ms);
  EXPECT_EQ(left(), 16) << "four times one thread's time";
}

TEST_F(OnednnPatience, OneThreadIsNotTriedWhereItWouldTakeLong) {
  for (const Duration took : {Duration(25ms), Duration(1ms)}) {
    runs = {.threads = 2};
    for (int i = 0; i < 3; ++i) run(took);
    EXPECT_FALSE(leaves()) << took.count();
  }
}

}  // namespace
}  // namespace convtune::onednn_patience_test
