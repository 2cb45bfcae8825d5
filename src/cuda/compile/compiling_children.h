// Child processes that compile, each within a time limit. The compiler cannot be stopped while it runs, and
// what crashes it must take nobody else down; beside that, processes scale where its threads do not: 16
// candidates of an H100 took 1.7 s by processes and 2.9 s by threads, on 16 processors.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace convtune::cuda {

class CompilingChildren {
 public:
  struct Result {
    std::optional<std::string> answer;
    std::string failure;  // why there is none
    bool late = false;    // because its time was up
  };

  CompilingChildren() = default;
  CompilingChildren(const CompilingChildren&) = delete;
  CompilingChildren& operator=(const CompilingChildren&) = delete;
  ~CompilingChildren();  // however it comes to it, none outlives this

  std::size_t count() const { return running_.size(); }
  // Begins a child that does `work`, which returns its answer (not empty) or throws.
  void begin(std::size_t job, const std::function<std::string()>& work, double seconds);
  // Waits for something to happen; calls finished(job, result) for every child that is done or late.
  void wait(const std::function<void(std::size_t, Result)>& finished);

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    std::size_t job = 0;
    pid_t process = -1;
    int pipe = -1;
    double seconds = 0;
    Clock::time_point deadline;
    std::string received;
  };
  static bool receive(Child& child);

  std::vector<Child> running_;
};

}  // namespace convtune::cuda
