// See undisturbed.h.
#include "cpu/base/undisturbed.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>

namespace convtune::cpu {
namespace {

constexpr int kMostTries = 5;
constexpr double kMostSleepUs = 5e3, kEnoughUs = 50e3;
constexpr double kLost = 0.1;  // share of the threads' time

}  // namespace

ThreadTimes thread_times() {
  ThreadTimes times;
  timespec cpu{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
    times.cpu_us = static_cast<double>(cpu.tv_sec) * 1e6 + static_cast<double>(cpu.tv_nsec) * 1e-3;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) times.preemptions = usage.ru_nivcsw;
  return times;
}

Sample undisturbed(int threads, const std::function<double()>& sample,
                   const std::function<ThreadTimes()>& times, const std::function<void(double us)>& sleep) {
  Sample first;
  double spent_us = 0;
  for (int tries = 1;; ++tries) {
    const ThreadTimes before = times();
    const double us = sample();
    const ThreadTimes after = times();
    const double processors = us > 0 ? (after.cpu_us - before.cpu_us) / us : 0;
    const bool interrupted = after.preemptions != before.preemptions && processors < (1 - kLost) * threads;
    if (us > 0 && !interrupted) return {us, {false, processors}};
    if (!(first.us > 0)) first = {us, {interrupted, processors}};
    spent_us += std::max(us, 0.0);
    if (tries == kMostTries || spent_us + us > kEnoughUs) return first;
    sleep(std::clamp(us, 0.0, kMostSleepUs));
  }
}

}  // namespace convtune::cpu
