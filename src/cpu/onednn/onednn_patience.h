// Decides which runs of oneDNN's plans have one thread, because its team waits for processors that other work
// has (docs/decisions/0153). It is told times and reads no clock.
#pragma once

#include <chrono>

#include "cpu/base/openmp.h"

namespace convtune::cpu {

class OnednnPatience {
 public:
  using Clock = std::chrono::steady_clock;

  // The least time of a plan's runs on so many threads and on one; zero: none yet.
  struct Runs {
    int threads = 1;
    Clock::duration least{}, least_alone{};
    bool tries_alone = false;  // in the next run, so that one thread's time is known
  };

  // The calling thread's, which counts for all plans.
  static OnednnPatience& of_this_thread();

  // Asked before every run of plans that give way (Executable::give_way()): whether it has one thread.
  bool leaves_team(const Runs& runs, Clock::time_point now);
  // Told after every one of them.
  void ran_on_all(Runs& runs, Clock::time_point began, Clock::time_point end);
  void ran_alone(Runs& runs, Clock::time_point began, Clock::time_point end);

 private:
  TeamPatience team_;
  Clock::time_point last_end_, left_;  // ends of the last run, and of the one after which it left the team
  bool last_alone_ = false;            // the last run had one thread
  // True where the last run on all threads was late, and where the next one tries the team again.
  bool last_late_ = false, tries_team_ = false;
};

}  // namespace convtune::cpu
