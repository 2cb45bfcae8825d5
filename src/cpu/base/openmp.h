// OpenMP as far as oneDNN needs it: its threads are GNU's OpenMP's (docs/decisions/0003), and a team of them
// has to be startable, to survive a fork, and to be left alone by signals. Loops of convtune's own run on
// thread_pool.h.
#pragma once

#include <chrono>
#include <csignal>

namespace convtune::cpu {

// How many threads OMP_NUM_THREADS or omp_set_num_threads() asks for, else how many processors there are.
int openmp_threads();

// Size of this thread's team where it is asked for `threads` threads: as many as the system lets it start,
// since libgomp ends the process over one that it cannot start. Asked before every region; the answer is
// known where the team was as large before.
int openmp_team_of(int threads);

// Calls member(context, i) on this thread's team, for i from 0 to members - 1 or to less, where the team's
// other threads wait on their processors for the next region, as they do for some milliseconds after one, and
// other threads would not get those: oneDNN ran, or all that surrounds the loops runs on OpenMP
// (share_openmp()). Returns false, and does nothing, elsewhere and while the team is left alone since its
// regions ended late.
bool work_in_waiting_team(int members, void (*member)(void* context, int index), void* context);
void share_openmp(bool shares);

// How long a thread goes on without its team. A region that its caller waits for by kLate longer than it
// worked is late: one of its threads is not on a processor, which others want. As many loops run without the
// team then, and twice as many where the next late region comes before as many others.
class TeamPatience {
 public:
  static constexpr std::chrono::microseconds kLate{100};

  // Asked before every loop.
  bool leaves() { return still_without_ > 0 && (--still_without_, true); }
  // The next loop has the team.
  void ends() { still_without_ = 0; }
  // Told after every region.
  void ran(std::chrono::nanoseconds worked, std::chrono::nanoseconds waited);

 private:
  static constexpr int kWithout = 16, kMostWithout = 4096;
  int without_ = kWithout, still_without_ = 0, on_time_ = kWithout;
};

// While one lives, handlers of signals wait, on the thread that made it and on the others of its team (on
// those for good): for code that a handler on its thread's stack would break. Signals that tell of an error
// in the code itself are not held.
class SignalsHeld {
 public:
  explicit SignalsHeld(int threads);
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace convtune::cpu
