// See pace.h.
#include "measure/pace.h"

#include <cmath>
#include <vector>

#include "base/statistics.h"

namespace convtune {

Pace::Pace(std::function<double()> sample_us, std::function<void(double)> wait, double patience_seconds)
    : sample_us_(std::move(sample_us)),
      wait_(std::move(wait)),
      patience_seconds_(patience_seconds),
      level_us_(now_us()) {
  for (double worked_us = 0; worked_us < patience_seconds_ * 1e6;) {
    const double us = now_us();
    const bool steady = std::abs(us - level_us_) <= kSteady * level_us_;
    level_us_ = us;
    if (steady) return;
    worked_us += kSamples * us;
  }
}

Pace::Change Pace::look() {
  const double us = now_us();
  slowdown_ = us / level_us_ - 1;
  if (at_level(us)) return Change::none;
  constexpr double kStep = 0.25;
  double latest = us;
  for (double waited = 0; waited < patience_seconds_; waited += kStep) {
    wait_(kStep);
    latest = now_us();
    if (at_level(latest)) return Change::passing;
  }
  level_us_ = latest;
  return Change::lasting;
}

double Pace::now_us() {
  std::vector<double> samples;
  for (int i = 0; i < kSamples; ++i) samples.push_back(sample_us_());
  return median(samples);
}

bool Pace::at_level(double us) const {
  return std::abs(us - level_us_) <= kDrift * level_us_;
}

}  // namespace convtune
