// The only OpenMP region of convtune, and how threads share what is left of it. Under ThreadSanitizer it also
// tells the tool about fork and join: g++'s libgomp is not instrumented, so without help every loop is
// reported as a race.
//
// What was tried with g++ 12 (runs of 300 loops, three threads that each start loops of their own):
//   nothing                           14 false reports
//   acquire and release alone          6: the function that the compiler outlines reads the captured
//                                         variables before its first statement, so before the acquire
//   those and no_sanitize (this file)  0 at -O0, -O1 and -O2, and a planted race between two bodies is
//                                         found in every run (tests/unit/planted_race.cpp)
//   clang 14 with libomp and archer    3, from inside libomp, unless all of it is told to be ignored
#include "cpu/base/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define CONVTUNE_UNSEEN __attribute__((no_sanitize("thread")))  // the outlined function inherits it
#define CONVTUNE_RELEASE(address) __tsan_release(address)
#define CONVTUNE_ACQUIRE(address) __tsan_acquire(address)
#else
#define CONVTUNE_UNSEEN
#define CONVTUNE_RELEASE(address) static_cast<void>(address)
#define CONVTUNE_ACQUIRE(address) static_cast<void>(address)
#endif

namespace convtune::cpu {
namespace {

// The most that this thread's team has had.
thread_local int team_size = 1;

struct Loop {
  void (*body)(void* context, int thread, std::int64_t begin, std::int64_t end);
  void* context;
  std::int64_t tasks;
};

// Runs differ by at most one task. Not inlined, so that a sanitizer watches the body.
[[gnu::noinline]] void run_share(const Loop& loop, int thread, int threads) {
  const std::int64_t share = loop.tasks / threads;
  const std::int64_t longer = loop.tasks % threads;  // how many of the first runs have one more
  const std::int64_t begin = thread * share + std::min<std::int64_t>(thread, longer);
  loop.body(loop.context, thread, begin, begin + share + (thread < longer ? 1 : 0));
}

// A forked child has the thread that forked and no other, but libgomp's list of a team's other threads, and
// its first region would wait for them for ever (Python's multiprocessing forks). So the thread that forks
// lets go of its team before; parent and child each make another, which takes 0.1 ms. oneDNN's regions are
// served by the same pool. Inside a region libgomp refuses, and nothing changes.
void let_go_of_team() {
  if (team_size > 1) omp_pause_resource_all(omp_pause_soft);
  team_size = 1;
}
// When the library is loaded: older C libraries hold a lock while handlers run, and registering one takes it.
[[maybe_unused]] const int team_handler = ::pthread_atfork(let_go_of_team, nullptr, nullptr);

// How many of so many threads can be started now, all at once.
int startable(int wanted) {
  std::atomic<int> may_end = 0;
  const auto wait = [](void* end) -> void* {
    static_cast<std::atomic<int>*>(end)->wait(0);
    return nullptr;
  };
  std::vector<pthread_t> started;
  started.reserve(static_cast<std::size_t>(wanted));
  for (pthread_t one;
       static_cast<int>(started.size()) < wanted && ::pthread_create(&one, nullptr, wait, &may_end) == 0;)
    started.push_back(one);
  may_end = 1;
  may_end.notify_all();
  for (const pthread_t one : started) ::pthread_join(one, nullptr);
  return static_cast<int>(started.size());
}

}  // namespace

int team_of(int threads) {
  if (threads <= team_size || omp_in_parallel()) return threads;  // a region within one has a thread
  const int team = team_size + startable(threads - team_size);
  team_size = team;
  return team;
}

CONVTUNE_UNSEEN
void parallel_for(int threads, std::int64_t tasks,
                  void (*body)(void* context, int thread, std::int64_t begin, std::int64_t end),
                  void* context) {
  if (tasks <= 0) return;
  const int team = team_of(static_cast<int>(std::min<std::int64_t>(threads, tasks)));
  if (team <= 1) {
    body(context, 0, 0, tasks);
    return;
  }
  const Loop loop{body, context, tasks};
  char fork = 0, join = 0;  // only their addresses matter
  CONVTUNE_RELEASE(&fork);
#pragma omp parallel num_threads(team)
  {
    CONVTUNE_ACQUIRE(&fork);
    // The team may be smaller than asked: a nested region, or a limit of the program's.
    run_share(loop, omp_get_thread_num(), omp_get_num_threads());
    CONVTUNE_RELEASE(&join);
  }
  CONVTUNE_ACQUIRE(&join);
}

// Alone, a thread has all of its share at once.
bool TaskQueue::take() {
  constexpr std::int64_t kParts = 4;
  for (int from = own_, tried = 0; tried < count_; ++tried, from = from + 1 < count_ ? from + 1 : 0) {
    Share& share = shares_[from];
    std::int64_t next = share.next.load(std::memory_order_relaxed);
    while (next < share.end) {
      const std::int64_t left = share.end - next;
      const std::int64_t part = count_ == 1 ? left : std::max<std::int64_t>(left / kParts, 1);
      if (!share.next.compare_exchange_weak(next, next + part, std::memory_order_relaxed)) continue;
      at_ = next, end_ = next + part, share_end_ = share.end;
      return true;
    }
  }
  return false;
}

// Threads that a team gets later are made by one that holds signals, and begin so.
SignalsHeld::SignalsHeld(int threads) {
  sigset_t waiting;
  sigfillset(&waiting);
  for (const int error : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&waiting, error);
  pthread_sigmask(SIG_BLOCK, &waiting, &before_);
  thread_local int held = 1;  // of this thread's team
  if (threads <= held) return;
  held = threads;
  parallel_for(threads, threads, [&](int thread, std::int64_t, std::int64_t) {
    if (thread != 0) pthread_sigmask(SIG_BLOCK, &waiting, nullptr);
  });
}

}  // namespace convtune::cpu
