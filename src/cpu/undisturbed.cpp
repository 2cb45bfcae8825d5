// See undisturbed.h.
#include "cpu/undisturbed.h"

#include <sys/resource.h>

#include <algorithm>

namespace convtune::cpu {
namespace {

constexpr int kMostTries = 5;
constexpr double kMostSleepUs = 5e3, kEnoughUs = 50e3;

}  // namespace

long preemptions() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

double undisturbed_us(const std::function<double()>& sample, const std::function<long()>& preemptions,
                      const std::function<void(double us)>& sleep) {
  double least_us = 0, spent_us = 0;
  for (int tries = 1;; ++tries) {
    const long before = preemptions();
    const double us = sample();
    if (preemptions() == before) return us;
    least_us = tries == 1 ? us : std::min(least_us, us);
    spent_us += us;
    if (tries == kMostTries || spent_us + least_us > kEnoughUs) return least_us;
    sleep(std::min(us, kMostSleepUs));
  }
}

}  // namespace convtune::cpu
