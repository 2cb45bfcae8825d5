// Child processes that compile, each within a time limit. The compiler cannot be stopped while it runs, and
// what crashes it must take nobody else down; beside that, processes scale where its threads do not: 16
// candidates of an H100 took 1.7 s by processes and 2.9 s by threads, on 16 processors. However it comes to
// it, none outlives the object that began it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/child.h"

namespace convtune {

class CompilingChildren {
 public:
  struct Result {
    std::optional<std::string> answer;
    std::string failure;  // why there is none
    bool late = false;    // because its time was up
  };

  std::size_t count() const { return running_.size(); }
  // Begins a child that does `work`, which returns its answer (not empty) or throws.
  void begin(std::size_t job, const std::function<std::string()>& work, double seconds);
  // Waits for something to happen; calls finished(job, result) for every child that is done or late.
  void wait(const std::function<void(std::size_t, Result)>& finished);

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t job;
    Child child;
    double seconds;
    Clock::time_point deadline;
  };

  std::vector<Running> running_;
};

}  // namespace convtune
