// The contest on a simulated machine: noise must not win, a true gain must, drift must cancel.
#include "convtune/contest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "convtune/error.h"

namespace convtune::contest_test {
namespace {

struct Noise {
  double sigma = 0.02;         // for the gaussian part
  double spike_chance = 0.05;  // that a sample takes 10 to 30 % more
  double drift = 0.1;          // of a slow wave of random length and phase
  double slope = 0;            // a sample: a machine that gets warm
  double least_spike = 0.1, most_spike = 0.3;
};

// Two kernels on one machine whose clock drifts. Everything follows from the seed.
class Machine {
 public:
  Machine(std::uint64_t seed, Noise noise) : noise_(noise), random_(seed) {
    std::uniform_real_distribution<double> unit;
    phase_ = 6.2832 * unit(random_);
    period_ = 30 + 300 * unit(random_);
  }
  double time_us(double work_us) {
    ++now_;
    double time =
        work_us * (1 + noise_.slope * now_ + noise_.drift * std::sin(phase_ + 6.2832 * now_ / period_));
    time *= 1 + noise_.sigma * std::normal_distribution<double>()(random_);
    std::uniform_real_distribution<double> unit;
    if (unit(random_) < noise_.spike_chance)
      time *= 1 + noise_.least_spike + (noise_.most_spike - noise_.least_spike) * unit(random_);
    return time;
  }

 private:
  Noise noise_;
  std::mt19937_64 random_;
  double phase_ = 0, period_ = 1, now_ = 0;
};

ContestResult hold(std::uint64_t seed, const Noise& noise, double true_gain, const ContestOptions& options) {
  Machine machine(seed, noise);
  return contest([&] { return machine.time_us(1000); },
                 [&] { return machine.time_us(1000 * (1 - true_gain)); }, options);
}

double accepted_share(int contests, const Noise& noise, double true_gain, const ContestOptions& options) {
  int accepted = 0;
  for (int i = 0; i < contests; ++i)
    accepted += hold(static_cast<std::uint64_t>(i) * 7919 + 1, noise, true_gain, options).accepted;
  return static_cast<double>(accepted) / contests;
}

ContestOptions asking(double min_gain) {
  ContestOptions options;
  options.min_gain = min_gain;
  return options;
}

constexpr int kContests = 5000;
// Other processes have the machine for a third of the samples, which take up to four times as long.
constexpr Noise kDisturbed{
    .sigma = 0.02, .spike_chance = 1.0 / 3, .drift = 0.1, .least_spike = 0.5, .most_spike = 3};

TEST(Contest, AgainstItselfIsAcceptedLessThanOnceIn100) {
  const Noise quiet{.sigma = 0.002, .spike_chance = 0.01, .drift = 0.01}, usual,
      wild{.sigma = 0.05, .spike_chance = 0.3, .drift = 0.3};
  for (const double min_gain : {0.02, 0.01, 0.0})
    for (const Noise& noise : {quiet, usual, wild})
      EXPECT_LT(accepted_share(kContests, noise, 0, asking(min_gain)), 0.01)
          << "min_gain " << min_gain << ", sigma " << noise.sigma;
}

// The hardest honest question: a challenger exactly as good as asked is not better than asked.
TEST(Contest, GainOfExactlyTheMinimumIsAcceptedLessThanOnceIn100) {
  EXPECT_LT(accepted_share(kContests, {}, 0.02, asking(0.02)), 0.01);
}

TEST(Contest, AgainstItselfHoldsForOtherNumbersOfLooks) {
  for (const int max_rounds : {10, 15, 80}) {
    ContestOptions options = asking(0);
    options.max_rounds = max_rounds;
    EXPECT_LT(accepted_share(kContests, {}, 0, options), 0.01) << max_rounds;
  }
  ContestOptions out_of_time = asking(0);  // after about 25 rounds of 4 ms
  out_of_time.max_seconds = 0.1;
  EXPECT_LT(accepted_share(kContests, {}, 0, out_of_time), 0.01);
}

// As tune() holds it again while it is undecided: noise has many contests to win.
TEST(Contest, HeldAgainUntilItIsDecidedItIsAcceptedLessThanOnceIn100) {
  constexpr int kTunes = 6;
  const Noise wild{.sigma = 0.05, .spike_chance = 0.3, .drift = 0.3};
  for (const double true_gain : {0.0, 0.02}) {
    int accepted = 0, held_again = 0;
    for (int i = 0; i < 600; ++i) {
      for (int undecided = 0; undecided < kTunes; ++undecided) {
        const ContestResult result =
            hold(static_cast<std::uint64_t>(i) * 7919 + static_cast<std::uint64_t>(undecided), wild,
                 true_gain, once_more(asking(0.02), undecided));
        accepted += result.accepted;
        held_again += undecided > 0;
        if (!result.undecided) break;
      }
    }
    EXPECT_LT(accepted, 6) << true_gain;
    EXPECT_GT(held_again, 10) << true_gain << ": nothing was undecided, which shows nothing";
  }
}

TEST(Contest, HeldAgainItFindsATrueGain) {
  EXPECT_GT(accepted_share(2000, {}, 0.05, once_more(asking(0.02), 1)), 0.9);
  EXPECT_TRUE(hold(1, {}, 0.3, once_more(asking(0.02), 1000)).accepted);
}

// Per round of the challenger what it takes, of an incumbent's 100.
ContestResult hold_pattern(const std::vector<double>& challenger, double min_gain = 0.02) {
  std::size_t runs = 0;
  return contest([] { return 100.0; }, [&] { return challenger[runs++ / 2 % challenger.size()]; },
                 asking(min_gain));
}

TEST(Contest, IsUndecidedWhereTheIntervalHoldsWhatIsAsked) {
  const auto torn = [](double more_often) {  // eleven rounds of twenty
    std::vector<double> rounds;
    for (int i = 0; i < 9; ++i) rounds.insert(rounds.end(), {80, 125});
    rounds.insert(rounds.end(), {more_often, more_often});
    return rounds;
  };
  for (const auto& [challenger, undecided, leans] : {std::tuple{std::vector<double>{80}, false, false},
                                                     {{125}, false, false},
                                                     {{99}, false, false},
                                                     {{80, 80, 125}, false, false},
                                                     {torn(80), true, true},
                                                     {{80, 125}, true, false},
                                                     {torn(125), true, false},
                                                     {{80, 125, 125}, false, false}}) {
    const ContestResult result = hold_pattern(challenger);
    EXPECT_EQ(result.undecided, undecided) << result.reason;
    EXPECT_EQ(result.leans_to_challenger, leans) << result.reason;
    EXPECT_EQ(result.reason, result.finding + (result.accepted ? "" : ": the incumbent stays"));
  }
  EXPECT_FALSE(hold_pattern({100}, 0).undecided);  // a tie is decided
  ContestOptions cancelled;
  cancelled.cancelled = [] { return true; };
  EXPECT_FALSE(contest([] { return 100.0; }, [] { return 90.0; }, cancelled).undecided);
}

TEST(Contest, FivePercentIsFound) {
  const Noise gaussian{.sigma = 0.02, .spike_chance = 0, .drift = 0};
  EXPECT_GT(accepted_share(kContests, gaussian, 0.05, asking(0.02)), 0.95);
  EXPECT_GT(accepted_share(kContests, {}, 0.05, asking(0.02)), 0.95);
}

TEST(Contest, ADisturbedMachineDecidesNevertheless) {
  constexpr int kDisturbedContests = 500;
  EXPECT_GT(accepted_share(kDisturbedContests, kDisturbed, 0.3, asking(0.02)), 0.99);
  for (const double min_gain : {0.02, 0.0})
    EXPECT_LT(accepted_share(kDisturbedContests, kDisturbed, min_gain, asking(min_gain)), 0.01) << min_gain;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < kDisturbedContests; ++seed) {
    const ContestResult slower = hold(seed, kDisturbed, -0.3, asking(0.02));
    refused += !slower.accepted && !slower.undecided;
  }
  EXPECT_GT(refused, 0.99 * kDisturbedContests);
  ContestOptions forty = asking(0.02);  // why they may go on for longer
  forty.max_rounds = 40;
  EXPECT_LT(accepted_share(kDisturbedContests, kDisturbed, 0.3, forty), 0.9);
}

TEST(Contest, SlowerChallengerIsSentHomeEarly) {
  const ContestResult result = hold(1, {}, -0.2, asking(0.02));
  EXPECT_FALSE(result.accepted);
  EXPECT_EQ(result.rounds, 10);
  EXPECT_NEAR(result.gain, -0.2, 0.03);
}

TEST(Contest, LinearDriftCancels) {
  // 1 % a sample: 3 samples lie between the ends of a round, so that without the order A B B A the
  // second side would lose by 1 to 3 %.
  const Noise warming{.sigma = 0, .spike_chance = 0, .drift = 0, .slope = 0.01};
  const ContestResult same = hold(1, warming, 0, asking(0));
  EXPECT_FALSE(same.accepted);
  EXPECT_NEAR(same.gain, 0, 1e-12);
  const ContestResult better = hold(1, warming, 0.03, asking(0.02));
  EXPECT_TRUE(better.accepted);
  EXPECT_NEAR(better.gain, 0.03, 1e-12);
  EXPECT_EQ(better.rounds, 10);
}

TEST(Contest, RoundsRunInTheOrderABBA) {
  std::string order;
  ContestOptions options;
  options.max_rounds = options.min_rounds = 3;
  const auto side = [&](char letter) { return [&order, letter] { return order += letter, 100.0; }; };
  const ContestResult result = contest(side('A'), side('B'), options);
  EXPECT_EQ(order, "ABBAABBAABBA");
  EXPECT_EQ(result.incumbent_us.size(), 6u);
  EXPECT_EQ(result.challenger_us.size(), 6u);
  EXPECT_FALSE(result.accepted);  // 3 rounds prove nothing
  EXPECT_EQ(result.reason, "3 rounds are too few to prove a gain: the incumbent stays");
}

TEST(Contest, TieIsNoGain) {
  const ContestResult result = contest([] { return 100.0; }, [] { return 100.0; }, asking(0));
  EXPECT_FALSE(result.accepted);
  EXPECT_EQ(result.gain, 0);
}

TEST(Contest, SameSeedSameResult) {
  const ContestResult first = hold(5, {}, 0.04, {}), second = hold(5, {}, 0.04, {});
  EXPECT_EQ(first.reason, second.reason);
  EXPECT_EQ(first.challenger_us, second.challenger_us);
  EXPECT_EQ(first.interval.low, second.interval.low);
}

TEST(Contest, CancelStopsBetweenRounds) {
  int polls = 0;
  ContestOptions options;
  options.cancelled = [&] { return ++polls > 3; };
  const ContestResult result = contest([] { return 100.0; }, [] { return 10.0; }, options);
  EXPECT_TRUE(result.cancelled);
  EXPECT_FALSE(result.accepted);
  EXPECT_EQ(result.rounds, 3);
  EXPECT_NEAR(result.gain, 0.9, 1e-12);
  EXPECT_EQ(result.reason, "cancelled after 3 rounds: the incumbent stays");

  options.cancelled = [] { return true; };
  EXPECT_EQ(contest([] { return 100.0; }, [] { return 10.0; }, options).rounds, 0);
}

TEST(Contest, TimeIsBoundedButMinRoundsComeFirst) {
  ContestOptions options = asking(0.0);
  options.max_seconds = 0.5;  // a round of 4 x 10 ms takes 0.04 s
  const Noise noise;
  Machine machine(3, noise);
  const auto side = [&] { return machine.time_us(10'000); };
  const ContestResult result = contest(side, side, options);
  EXPECT_GE(result.rounds, 10);
  EXPECT_LE(result.rounds, 15);
  options.max_seconds = 0;
  EXPECT_EQ(contest(side, side, options).rounds, 10);
}

TEST(Contest, LateEndsItAfterMinRoundsAndProvesNoMore) {
  ContestOptions options = asking(0.02);
  int polls = 0;
  options.late = [&] { return ++polls > 3; };
  EXPECT_EQ(hold(1, {}, 0.03, options).rounds, options.min_rounds + 3);
  options.late = [] { return true; };
  EXPECT_EQ(hold(1, {}, 0.03, options).rounds, options.min_rounds);
  EXPECT_LT(accepted_share(2000, {}, 0, options), 0.01);
  EXPECT_TRUE(hold(1, {}, 0.3, options).accepted);
}

TEST(Contest, ReasonsCarryTheNumbers) {
  const auto fixed = [](double time_us) { return [time_us] { return time_us; }; };
  EXPECT_EQ(contest(fixed(100), fixed(87.7), asking(0.02)).reason,
            "takes 12.3 % less time (99 % interval 12.3..12.3 %) over 10 rounds, more than the 2 % asked");
  EXPECT_EQ(contest(fixed(100), fixed(99.2), asking(0.02)).reason,
            "gain 0.8 % (99 % interval 0.8..0.8 %) over 10 rounds is below 2 %: the incumbent stays");
  EXPECT_EQ(contest(fixed(100), fixed(100), asking(0)).reason,
            "gain 0.0 % (99 % interval 0.0..0.0 %) over 640 rounds is not proven to be above 0 %: the "
            "incumbent stays");
  int calls = 0;  // half of the rounds win by 10 %, half lose by 10 %
  const auto torn = [&calls] { return (calls++ / 2) % 2 == 0 ? 90.0 : 110.0; };
  EXPECT_EQ(contest(fixed(100), torn, asking(0.02)).reason,
            "gain 0.0 % (99 % interval -10.0..10.0 %) over 640 rounds is not proven to reach 2 %: the "
            "incumbent stays");
}

// Two works on one processor that others have, too: a slice of 3 ms in `others` + 1. Who has slept may begin
// its slice, so that what is shorter is mostly not interrupted, and what is longer always is.
class BusyMachine {
 public:
  BusyMachine(std::uint64_t seed, int others) : random_(seed), others_(others) {}
  double time_us(double work_us) {
    double time = 0, left = work_us * (1 + 0.01 * std::normal_distribution<double>()(random_));
    const double work = left;
    for (double slice = kSlice * (0.8 + 0.2 * unit_(random_)); left > slice; slice = kSlice) {
      left -= slice;
      time += slice + others_ * kSlice * (0.7 + 0.6 * unit_(random_));
    }
    time += left;
    witness_ = {time > 1.1 * work, work / time};
    return time;
  }
  ContestResult hold(double incumbent_us, double challenger_us, bool with_witness = true) {
    ContestOptions options;
    if (with_witness) options.witness = [this] { return witness_; };
    return contest([&] { return time_us(incumbent_us); }, [&] { return time_us(challenger_us); }, options);
  }

 private:
  static constexpr double kSlice = 3000;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> unit_;
  int others_;
  Witness witness_;
};

TEST(Contest, OnABusyMachineAGainIsNotProvenByInterruptions) {
  // Equal works that the slices make unequal: one ends within its own, the other just does not.
  const ContestResult clock_alone = BusyMachine(1, 4).hold(3100, 2200, false);
  EXPECT_TRUE(clock_alone.accepted);
  EXPECT_GT(clock_alone.gain, 0.5) << "of which 29 % are true: what a clock alone takes for proof";

  const ContestResult result = BusyMachine(1, 4).hold(3100, 2200);
  EXPECT_FALSE(result.accepted);
  EXPECT_TRUE(result.busy);
  EXPECT_TRUE(result.undecided);
  EXPECT_TRUE(result.leans_to_challenger) << "by either clock";
  EXPECT_GT(result.incumbent_interrupted, 0.9 * static_cast<double>(result.incumbent_us.size()));
  EXPECT_EQ(result.challenger_interrupted, 0);
  EXPECT_NE(result.reason.find("the machine is busy, "), std::string::npos) << result.reason;
  EXPECT_NE(result.reason.find(" % by processor time, is not proven"), std::string::npos) << result.reason;
}

TEST(Contest, OnABusyMachineTheInterruptedSideIsNotSentHome) {
  const ContestResult result = BusyMachine(1, 4).hold(2200, 3100);
  EXPECT_TRUE(result.undecided);
  EXPECT_FALSE(result.leans_to_challenger);
}

TEST(Contest, OnABusyMachineEqualWorksHaveNoProvenGain) {
  int accepted = 0, busy = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const double us : {300.0, 3000.0, 30'000.0}) {
      const ContestResult result = BusyMachine(seed, 4).hold(us, us);
      accepted += result.accepted, busy += result.busy;
    }
  EXPECT_EQ(accepted, 0);
  EXPECT_GT(busy, 100);
}

TEST(Contest, OnABusyMachineWhatBothClocksShowIsProven) {
  const ContestResult result = BusyMachine(1, 4).hold(40'000, 20'000);
  EXPECT_TRUE(result.accepted) << result.reason;
  EXPECT_TRUE(result.busy);
  EXPECT_NE(result.reason.find("and processor time proves a gain, too"), std::string::npos) << result.reason;
  EXPECT_FALSE(BusyMachine(1, 4).hold(40'000, 40'000).accepted);
}

// A quiet machine preempts long samples now and then, for moments; and a vendor's threads may sleep.
TEST(Contest, AFewInterruptionsOnOneSideDecideAsBefore) {
  ContestOptions options;
  int samples = 0;
  options.witness = [&] { return Witness{samples++ % 10 == 0, 1}; };
  EXPECT_TRUE(contest([] { return 100.0; }, [] { return 90.0; }, options).accepted);
  options.witness = [&] { return Witness{false, samples++ % 2 == 0 ? 0.5 : 2}; };
  const ContestResult result = contest([] { return 100.0; }, [] { return 90.0; }, options);
  EXPECT_TRUE(result.accepted);
  EXPECT_FALSE(result.busy);
  EXPECT_EQ(result.reason.find("busy"), std::string::npos);
}

TEST(Contest, ImpossibleTimesAndThrowingSides) {
  const auto good = [] { return 100.0; };
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    try {
      contest(good, [bad] { return bad; }, {});
      ADD_FAILURE() << bad << " was taken for a time";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_NE(std::string(error.what()).find("challenger"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(contest(good, []() -> double { throw Error(ErrorKind::internal, "kernel failed"); }, {}),
               Error);
}

}  // namespace
}  // namespace convtune::contest_test
