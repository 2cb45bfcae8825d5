// Times of work that other processes disturb: a thread that is preempted waits for others' time slices, of
// milliseconds, and all that the work's other threads do is to wait for it. What is timed so is the
// scheduler.
#pragma once

#include <functional>

#include "convtune/contest.h"

namespace convtune::cpu {

// The threads of this process so far: the time that processors gave them, and how often they were preempted.
struct ThreadTimes {
  double cpu_us = 0;
  long preemptions = 0;
};
ThreadTimes thread_times();

struct Sample {
  double us = 0;
  Witness witness;
};

// A sample of work of so many threads that nothing interrupted, out of five; the first where each of them
// was. The shortest of several would be of another kind than the only one of a long work, and a contest has
// both. Interrupted: a thread was preempted, and a tenth of the threads' time is missing. Who has slept is
// served first: between two tries this thread sleeps as long as the first of them took, 5 ms at most. Samples
// that make 50 ms together are enough: longer ones are always interrupted where anything else runs. A time
// that is not above 0, of a clock that was set back meanwhile, is taken again.
Sample undisturbed(int threads, const std::function<double()>& sample,
                   const std::function<ThreadTimes()>& times, const std::function<void(double us)>& sleep);

}  // namespace convtune::cpu
