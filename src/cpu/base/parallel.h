// The one way to use the CPU's threads: tasks that are claimed, on threads of convtune's own or of the
// program's (set_cpu_executor()). OMP_NUM_THREADS means what people think.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace convtune {
struct CpuExecutor;
}

namespace convtune::cpu {

// Has loops run on the program's threads from now on; null: on convtune's own. The executor must stay.
void use_executor(const CpuExecutor* executor);
bool uses_executor();

// Gives a thread of parallel_tasks() its tasks, in ascending order while it works on its own share.
class TaskQueue {
 public:
  // A thread's share of the tasks: [next, end) are left.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  // `own`: the share to begin with; the queue of share 0 gives out all that nobody else takes.
  TaskQueue(Share* shares, int count, int own) : shares_(shares), count_(count), own_(own) {}

  // Takes the next task, which is this thread's then; false where none is left.
  bool next(std::int64_t& task) {
    if (at_ == end_ && !take()) return false;
    task = at_++;
    return true;
  }
  // Takes tasks [begin, end) that follow each other; false where none is left.
  bool next(std::int64_t& begin, std::int64_t& end) {
    if (at_ == end_ && !take()) return false;
    begin = at_, end = at_ = end_;
    return true;
  }
  // The end of the share that the last task was taken from: what follows it is likely this thread's, too.
  std::int64_t share_end() const { return share_end_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool take();

  Share* shares_;
  int count_, own_;
  std::int64_t at_ = 0, end_ = 0, share_end_ = 0;
  std::int64_t most_ = 1;  // tasks taken at a time
  Clock::time_point taken_;
};

// Calls member(context, i) for each of [0, members) that comes before the work is done, 0 always.
void run_members(int members, void (*member)(void* context, int index), void* context);

// Runs body(TaskQueue&) on this thread and on `threads` in all, or fewer. Each has an equal share of
// [0, tasks) to begin with, takes tasks of some ten microseconds at a time, and has done with its own takes
// from the others': a thread that the system holds up delays what it has taken, and one that has not begun
// delays nothing. Returns when all tasks are done. body must not throw.
template <class Body>
void parallel_tasks(int threads, std::int64_t tasks, Body&& body) {
  if (tasks <= 0) return;
  const auto team = static_cast<int>(std::clamp<std::int64_t>(threads, 1, tasks));
  std::vector<TaskQueue::Share> shares(static_cast<std::size_t>(team));
  for (std::int64_t i = 0; i < team; ++i) {
    const std::int64_t share = tasks / team, longer = tasks % team;
    TaskQueue::Share& one = shares[static_cast<std::size_t>(i)];
    one.next = i * share + std::min(i, longer);
    one.end = one.next + share + (i < longer ? 1 : 0);
  }
  auto member = [&](int index) {
    TaskQueue queue(shares.data(), team, index);
    body(queue);
  };
  run_members(
      team, [](void* context, int index) { (*static_cast<decltype(member)*>(context))(index); }, &member);
}

// Runs body(begin, end) for ranges that make [0, tasks) together, by `threads` threads, or fewer. Returns
// when all are done. body must not throw.
template <class Body>
void parallel_for(int threads, std::int64_t tasks, Body&& body) {
  parallel_tasks(threads, tasks, [&](TaskQueue& queue) {
    for (std::int64_t begin = 0, end = 0; queue.next(begin, end);) body(begin, end);
  });
}

}  // namespace convtune::cpu
