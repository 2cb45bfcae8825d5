// Medians and their intervals, against hand-made numbers, brute force and simulated truth.
#include "base/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace convtune::statistics_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> normal_samples(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(100, 2);
  std::vector<double> samples(n);
  for (double& sample : samples) sample = normal(random);
  return samples;
}

TEST(Median, OfNoneOneOddAndEven) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(std::vector<double>{1, 2, 3, 4, 1e300}), 3);
}

TEST(Median, DeviationIsRobust) {
  EXPECT_EQ(median_absolute_deviation({}), 0);
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{5, 5, 5}), 0);
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 1, 2, 2, 4, 6, 9}), 1);
  EXPECT_EQ(median_absolute_deviation(std::vector<double>{1, 1, 2, 2, 4, 6, 1e9}), 1);
}

TEST(RankCorrelation, OfOrdersAndTies) {
  const std::vector<double> up = {1, 2, 3, 4, 100};
  EXPECT_DOUBLE_EQ(rank_correlation(up, std::vector<double>{-5, 0, 1e-9, 7, 8}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(up, std::vector<double>{9, 8, 7, 6, 5}), -1);
  // 1 - 6 (1 + 1 + 0 + 0 + 0) / (5 * 24)
  EXPECT_DOUBLE_EQ(rank_correlation(up, std::vector<double>{2, 1, 3, 4, 5}), 0.9);
  // Ranks 1.5, 1.5, 3 against 1, 2, 3: 1.5 / sqrt(1.5 * 2).
  EXPECT_DOUBLE_EQ(rank_correlation(std::vector<double>{4, 4, 5}, std::vector<double>{1, 2, 3}),
                   1.5 / std::sqrt(3.0));
  EXPECT_EQ(rank_correlation(up, std::vector<double>(5, 7.0)), 0);
  EXPECT_EQ(rank_correlation({}, {}), 0);
}

// By counting: of n samples, the interval from the k-th smallest to the k-th greatest misses the
// median with probability 2 * sum of C(n, i) / 2^n over i < k.
TEST(ExactInterval, IsTheNarrowestThatCountingPermits) {
  for (unsigned n = 1; n <= 50; ++n) {
    std::vector<double> samples(n);
    for (unsigned i = 0; i < n; ++i) samples[i] = n - i;  // the k-th smallest is k
    for (const double confidence : {0.5, 0.9, 0.99, 0.9967}) {
      unsigned k = 0;
      long double tail = 0, chosen = 1;  // C(n, k)
      while (2 * k < n) {
        tail += chosen / std::exp2(static_cast<long double>(n));
        if (tail > (1 - static_cast<long double>(confidence)) / 2 * (1 + 1e-12L)) break;
        ++k;
        chosen = chosen * (n - k + 1) / k;
      }
      const Interval interval = exact_median_interval(samples, confidence);
      EXPECT_EQ(interval.low, k == 0 ? -kInfinity : k) << n << " at " << confidence;
      EXPECT_EQ(interval.high, k == 0 ? kInfinity : n + 1 - k) << n << " at " << confidence;
    }
  }
}

TEST(ExactInterval, KeepsItsWordWhereABootstrapDoesNot) {
  constexpr int kTrials = 20000;
  int missed = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples = normal_samples(10, 5000 + static_cast<unsigned>(trial));
    for (double& sample : samples) sample = std::exp(sample);  // as skewed as timings, and more
    const Interval interval = exact_median_interval(samples, 0.99);
    missed += std::exp(100.0) < interval.low || interval.high < std::exp(100.0);
  }
  EXPECT_LE(missed, kTrials / 100);
}

TEST(ExactInterval, OfThousandsDoesNotUnderflow) {
  std::vector<double> samples(4001);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<double>(i);
  const Interval interval = exact_median_interval(samples, 0.99);
  // Normal approximation: 2000 -+ 2.576 * sqrt(4001) / 2.
  EXPECT_NEAR(interval.low, 2000 - 81.5, 2);
  EXPECT_NEAR(interval.high, 2000 + 81.5, 2);
}

}  // namespace
}  // namespace convtune::statistics_test
