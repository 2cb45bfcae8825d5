// The pace of a machine, on a simulated one.
#include "measure/pace.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/random_bits.h"

namespace convtune {
namespace {

// Work of 100 us at full speed, with noise of half a percent; its clock is lowered while it is hot.
struct Machine {
  double speed = 1, waited = 0;
  double recovers_after = 1e9;  // seconds of waiting
  std::uint64_t samples = 0;

  double sample_us() {
    const double noise = static_cast<double>(random_bits(1, samples++) % 1000) / 1000 - 0.5;
    return 100 / speed * (1 + 0.01 * noise);
  }
  void wait(double seconds) {
    waited += seconds;
    if (waited >= recovers_after) speed = 1;
  }
  Pace pace() {
    return Pace([this] { return sample_us(); }, [this](double seconds) { wait(seconds); });
  }
};

TEST(Pace, NoiseIsNoChange) {
  Machine machine;
  Pace pace = machine.pace();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(pace.look(), Pace::Change::none);
  EXPECT_NEAR(pace.level_us(), 100, 1);
  EXPECT_EQ(machine.waited, 0);
}

TEST(Pace, ThrottlingThatPasses) {
  Machine machine;
  Pace pace = machine.pace();
  machine.speed = 0.8, machine.recovers_after = 1;
  EXPECT_EQ(pace.look(), Pace::Change::passing);
  EXPECT_NEAR(pace.slowdown(), 0.25, 0.02);
  EXPECT_NEAR(machine.waited, 1, 0.3);
  EXPECT_NEAR(pace.level_us(), 100, 1);
  EXPECT_EQ(pace.look(), Pace::Change::none);
}

TEST(Pace, ThrottlingThatStaysIsTheNewLevel) {
  Machine machine;
  Pace pace = machine.pace();
  machine.speed = 0.8;
  EXPECT_EQ(pace.look(), Pace::Change::lasting);
  EXPECT_NEAR(machine.waited, Pace::kPatienceSeconds, 0.3);
  EXPECT_NEAR(pace.level_us(), 125, 2);
  EXPECT_EQ(pace.look(), Pace::Change::none);
  machine.speed = 1;  // and back again
  EXPECT_EQ(pace.look(), Pace::Change::lasting);
  EXPECT_LT(pace.slowdown(), -0.15);
}

TEST(Pace, StartsWhenTheClockIsSteady) {
  Machine machine;
  const Pace pace([&] { return machine.sample_us() * (1 + 3.0 / static_cast<double>(machine.samples)); },
                  [](double) {});
  EXPECT_LT(pace.level_us(), 115);
  EXPECT_GT(machine.samples, 9u);
}

TEST(Pace, AMachineThatIsNeverSteadyIsTakenAsItIs) {
  Machine machine;
  const Pace pace([&] { return machine.samples++ / 3 % 2 == 0 ? 20'000.0 : 30'000.0; }, [](double) {});
  EXPECT_LE(machine.samples, 3 + 3e6 / 20'000);
}

}  // namespace
}  // namespace convtune
