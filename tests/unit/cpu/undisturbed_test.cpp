// Samples that other work interrupts are taken again, for a while.
#include "cpu/base/undisturbed.h"

#include <gtest/gtest.h>

#include <vector>

namespace convtune::undisturbed_test {
namespace {

struct Given {
  double us = 0;
  long preempted = 0;  // during it
  double cpu_us = 0;   // that the threads had of it
};

// A machine whose samples are given.
struct Machine {
  std::vector<Given> samples;
  int threads = 1;
  std::size_t tries = 0;
  cpu::ThreadTimes times = {12e6, 7};
  std::vector<double> slept_us = {};

  cpu::Sample time() {
    return cpu::undisturbed(
        threads,
        [&] {
          const Given& one = samples.at(tries++);
          times.cpu_us += one.cpu_us, times.preemptions += one.preempted;
          return one.us;
        },
        [&] { return times; }, [&](double us) { slept_us.push_back(us); });
  }
};

TEST(Undisturbed, TakesAQuietSampleAsItIs) {
  Machine machine{{{1200, 0, 1190}}};
  const cpu::Sample sample = machine.time();
  EXPECT_EQ(sample.us, 1200);
  EXPECT_FALSE(sample.witness.interrupted);
  EXPECT_NEAR(sample.witness.processors, 1190.0 / 1200, 1e-6);
  EXPECT_TRUE(machine.slept_us.empty());
}

TEST(Undisturbed, TriesAgainUntilNothingIsLost) {
  Machine machine{{{7999, 2, 1200}, {1500, 1, 1200}, {1300, 0, 1290}}};
  EXPECT_EQ(machine.time().us, 1300) << "not the least: it was interrupted, who knows of what";
  EXPECT_EQ(machine.slept_us, (std::vector<double>{5000, 1500}));
}

TEST(Undisturbed, APreemptionThatTakesNextToNothingInterruptsNothing) {
  Machine machine{{{100'000, 3, 99'000}}};
  EXPECT_FALSE(machine.time().witness.interrupted);
  EXPECT_EQ(machine.tries, 1U);
}

TEST(Undisturbed, ThreadsThatSleepAreNotInterrupted) {
  Machine machine{.samples = {{1000, 0, 1100}}, .threads = 2};
  EXPECT_FALSE(machine.time().witness.interrupted);
  Machine busy{.samples = {{40'000, 4, 55'000}},
               .threads = 2};  // one of the two waited, and the other for it
  EXPECT_TRUE(busy.time().witness.interrupted);
}

// However long a sample is, the one that stands for a busy machine is chosen in the same way: a short work
// must not have the best of five where a long one has the only one.
TEST(Undisturbed, TakesTheFirstWhereEachWasInterrupted) {
  Machine machine{{{7999, 1, 900}, {4000, 1, 900}, {3000, 1, 900}, {7000, 1, 900}, {6000, 1, 900}}};
  const cpu::Sample sample = machine.time();
  EXPECT_EQ(sample.us, 7999);
  EXPECT_TRUE(sample.witness.interrupted);
  EXPECT_EQ(machine.tries, 5U);
}

TEST(Undisturbed, DoesNotRepeatWhatIsLong) {
  Machine machine{{{30000, 3, 9000}, {29000, 4, 9000}}};
  const cpu::Sample sample = machine.time();
  EXPECT_EQ(sample.us, 30000);
  EXPECT_TRUE(sample.witness.interrupted);
  EXPECT_EQ(machine.tries, 1U);
}

TEST(Undisturbed, AClockThatWasSetBackIsAskedAgain) {
  Machine machine{{{-9680, 0, 300}, {320, 0, 310}}};
  const cpu::Sample sample = machine.time();
  EXPECT_EQ(sample.us, 320);
  EXPECT_FALSE(sample.witness.interrupted);
}

TEST(Undisturbed, AsksThisProcess) {
  const cpu::ThreadTimes before = cpu::thread_times();
  volatile double sum = 0;
  for (int i = 0; i < 1'000'000; ++i) sum = sum + i;
  const cpu::ThreadTimes after = cpu::thread_times();
  EXPECT_GE(before.preemptions, 0);
  EXPECT_GE(after.preemptions, before.preemptions);
  EXPECT_GT(after.cpu_us, before.cpu_us);
}

}  // namespace
}  // namespace convtune::undisturbed_test
