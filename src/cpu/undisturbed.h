// Times of work that other processes disturb: a thread that is preempted waits for others' time slices, of
// milliseconds, and all that the work's other threads do is to wait for it. What is timed so is the
// scheduler.
#pragma once

#include <functional>

namespace convtune::cpu {

// How often a thread of this process was preempted so far.
long preemptions();

// A sample during which no thread was preempted, out of a few; the least where none was. Who has slept is
// served first: between two tries this thread sleeps as long as the first of them took, 5 ms at most. Samples
// that make 50 ms together are enough: longer ones are always preempted where anything else runs.
double undisturbed_us(const std::function<double()>& sample, const std::function<long()>& preemptions,
                      const std::function<void(double us)>& sleep);

}  // namespace convtune::cpu
