// The one way to use the CPU's threads: OpenMP's pool, so that OMP_NUM_THREADS means what people
// think and one pool serves convtune, oneDNN and the program around them.
#pragma once

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace convtune::cpu {

// How large a team of this thread's is that has so many threads, or as many as the system lets it start:
// where one cannot be started, libgomp ends the process. Asked before every region; the answer is known where
// the team was as large before.
int team_of(int threads);

// Runs body(thread, begin, end) with [0, tasks) cut into contiguous runs of equal length, one a
// thread. `context` is handed through. Returns when all are done. body must not throw.
void parallel_for(int threads, std::int64_t tasks,
                  void (*body)(void* context, int thread, std::int64_t begin, std::int64_t end),
                  void* context);

// The same for a callable body(int thread, int64 begin, int64 end).
template <class Body>
void parallel_for(int threads, std::int64_t tasks, Body&& body) {
  parallel_for(
      threads, tasks,
      [](void* context, int thread, std::int64_t begin, std::int64_t end) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(thread, begin, end);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// What a thread of parallel_tasks() takes its tasks from, in ascending order while it works on its own share.
class TaskQueue {
 public:
  // A thread's share of the tasks: [next, end) are left.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  TaskQueue(Share* shares, int count, int own) : shares_(shares), count_(count), own_(own) {}

  // Whether there is another task, which is this thread's then.
  bool next(std::int64_t& task) {
    if (at_ == end_ && !take()) return false;
    task = at_++;
    return true;
  }
  // The end of the share that the last task was taken from: what follows it is likely this thread's, too.
  std::int64_t share_end() const { return share_end_; }

 private:
  bool take();

  Share* shares_;
  int count_, own_;
  std::int64_t at_ = 0, end_ = 0, share_end_ = 0;
};

// Runs body(TaskQueue&) on so many threads, or fewer. Each has an equal share of [0, tasks), takes a quarter
// of what is left of it at a time, and has done with its own takes from the others': a thread that the system
// holds up delays what it has taken, not its share. Returns when all are done. body must not throw.
template <class Body>
void parallel_tasks(int threads, std::int64_t tasks, Body&& body) {
  const auto team = static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(tasks, 1)));
  std::vector<TaskQueue::Share> shares(static_cast<std::size_t>(team));
  for (std::int64_t i = 0; i < team; ++i) {
    const std::int64_t share = tasks / team, longer = tasks % team;
    TaskQueue::Share& one = shares[static_cast<std::size_t>(i)];
    one.next = i * share + std::min(i, longer);
    one.end = one.next + share + (i < longer ? 1 : 0);
  }
  if (tasks <= 0) return;
  parallel_for(team, team, [&](int, std::int64_t begin, std::int64_t) {
    TaskQueue queue(shares.data(), team, static_cast<int>(begin));
    body(queue);
  });
}

// While one lives, handlers of signals wait, on the thread that made it and on the others of its team (on
// those for good): for code that a handler on its thread's stack would break. Signals that tell of an error
// in the code itself are not held.
class SignalsHeld {
 public:
  explicit SignalsHeld(int threads);
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace convtune::cpu
