// Median, median absolute deviation, and an interval of a median.
#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace convtune {
namespace {

constexpr Interval kWholeLine{-std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::infinity()};

double middle_of_sorted(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  return n == 0 ? 0 : (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

// From 1; equal values share the mean of their ranks.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end()), result;
  std::sort(sorted.begin(), sorted.end());
  for (const double value : values) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
    result.push_back(static_cast<double>((first - sorted.begin()) + (last - sorted.begin()) + 1) / 2);
  }
  return result;
}

}  // namespace

double median(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return middle_of_sorted(sorted);
}

double median_absolute_deviation(std::span<const double> samples) {
  const double center = median(samples);
  std::vector<double> deviations(samples.begin(), samples.end());
  for (double& value : deviations) value = std::abs(value - center);
  return median(deviations);
}

double rank_correlation(std::span<const double> one, std::span<const double> other) {
  const std::vector<double> a = ranks(one), b = ranks(other);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double both = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean) * (b[i] - mean);
    of_a += (a[i] - mean) * (a[i] - mean);
    of_b += (b[i] - mean) * (b[i] - mean);
  }
  return of_a > 0 && of_b > 0 ? both / std::sqrt(of_a * of_b) : 0;
}

Interval exact_median_interval(std::span<const double> samples, double confidence) {
  const std::size_t n = samples.size();
  // Each sample lies below the true median with probability 1/2, so that the chance of at most
  // `outside` of n below it is the tail of a binomial: add terms while the tail stays permitted.
  // By logarithms, since 2^-n underflows at n = 1075.
  const double permitted = (1 - confidence) / 2;
  std::size_t outside = 0;
  double log_term = -static_cast<double>(n) * std::numbers::ln2, tail = std::exp(log_term);
  while (tail <= permitted && 2 * outside < n) {
    ++outside;
    log_term += std::log(static_cast<double>(n - outside + 1) / static_cast<double>(outside));
    tail += std::exp(log_term);
  }
  if (outside == 0) return kWholeLine;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return {sorted[outside - 1], sorted[n - outside]};
}

}  // namespace convtune
