// Samples that preemptions disturb are taken again, for a while.
#include "cpu/undisturbed.h"

#include <gtest/gtest.h>

#include <vector>

namespace convtune::undisturbed_test {
namespace {

// A machine whose samples and preemptions are given.
struct Machine {
  std::vector<double> samples_us;
  std::vector<long> preempted;  // during each of them
  std::size_t tries = 0;
  long count = 7;
  std::vector<double> slept_us = {};

  double time() {
    return cpu::undisturbed_us(
        [&] {
          count += preempted[tries];
          return samples_us[tries++];
        },
        [&] { return count; }, [&](double us) { slept_us.push_back(us); });
  }
};

TEST(Undisturbed, TakesAQuietSampleAsItIs) {
  Machine machine{{1200}, {0}};
  EXPECT_EQ(machine.time(), 1200);
  EXPECT_TRUE(machine.slept_us.empty());
}

TEST(Undisturbed, TriesAgainUntilNobodyWasPreempted) {
  Machine machine{{7999, 900, 1300}, {2, 1, 0}};
  EXPECT_EQ(machine.time(), 1300) << "not the least: it was preempted, who knows of what";
  EXPECT_EQ(machine.slept_us, (std::vector<double>{5000, 900}));
}

TEST(Undisturbed, TakesTheLeastOfFive) {
  Machine machine{{7999, 4000, 3000, 7000, 6000}, {1, 1, 1, 1, 1}};
  EXPECT_EQ(machine.time(), 3000);
  EXPECT_EQ(machine.tries, 5U);
}

TEST(Undisturbed, DoesNotRepeatWhatIsLong) {
  Machine machine{{30000, 29000}, {3, 4}};
  EXPECT_EQ(machine.time(), 30000);
  EXPECT_EQ(machine.tries, 1U);
}

TEST(Undisturbed, CountsPreemptionsOfThisProcess) {
  const long before = cpu::preemptions();
  EXPECT_GE(before, 0);
  EXPECT_GE(cpu::preemptions(), before);
}

}  // namespace
}  // namespace convtune::undisturbed_test
