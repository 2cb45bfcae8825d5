// Median, median absolute deviation, and two intervals of a median.
// Bootstrap: resampling draws places in the sorted samples and counts them, so that a resample needs no sort.
#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace convtune {
namespace {

constexpr Interval kWholeLine{-std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::infinity()};

// SplitMix64 (Steele, Lea, Flood 2014): one addition and two multiplications a number.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

// `bits` of 32 random bits, scaled to [0, n).
std::size_t below(std::size_t n, std::uint32_t bits) {
  return static_cast<std::size_t>((static_cast<std::uint64_t>(bits) * n) >> 32);
}

double middle_of_sorted(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  return n == 0 ? 0 : (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
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

Interval bootstrap_median(std::span<const double> samples, double confidence, int resamples) {
  constexpr std::size_t kFewest = 5;
  if (samples.size() < kFewest || resamples < 1) return kWholeLine;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();

  SplitMix64 random(0x636f6e7674756e65u);
  std::vector<std::uint32_t> times_drawn(n);
  std::vector<double> medians(static_cast<std::size_t>(resamples));
  for (double& resampled : medians) {
    std::fill(times_drawn.begin(), times_drawn.end(), 0u);
    for (std::size_t i = 0; i < n; i += 2) {
      const std::uint64_t bits = random.next();
      ++times_drawn[below(n, static_cast<std::uint32_t>(bits))];
      if (i + 1 < n) ++times_drawn[below(n, static_cast<std::uint32_t>(bits >> 32))];
    }
    std::size_t place = 0, seen = times_drawn[0];
    while (seen <= (n - 1) / 2) seen += times_drawn[++place];
    const double lower_middle = sorted[place];
    while (seen <= n / 2) seen += times_drawn[++place];
    resampled = (lower_middle + sorted[place]) / 2;
  }

  // Rounded outwards: a bootstrap of few samples is a little too sure of itself as it is.
  const double tail = (1 - confidence) / 2 * static_cast<double>(resamples);
  const auto last = static_cast<std::ptrdiff_t>(resamples) - 1;
  const auto cut = std::clamp(static_cast<std::ptrdiff_t>(tail), std::ptrdiff_t{0}, last / 2);
  std::nth_element(medians.begin(), medians.begin() + cut, medians.end());
  const double low = medians[static_cast<std::size_t>(cut)];
  std::nth_element(medians.begin(), medians.begin() + (last - cut), medians.end());
  return {low, medians[static_cast<std::size_t>(last - cut)]};
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
