// See openmp.h.
#include "cpu/base/openmp.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

namespace convtune::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// The most that this thread's team has had, and when its last region ended, in whose wake others wait.
thread_local int team_size = 1;
thread_local constinit Clock::time_point last_region;
constexpr std::chrono::milliseconds kTeamWaits{4};
constinit std::atomic<bool> shared = false;

thread_local constinit TeamPatience patience;

// A forked child has the thread that forked and no other, but libgomp's list of a team's other threads, and
// its first region would wait for them for ever (Python's multiprocessing forks). So the thread that forks
// lets go of its team before; parent and child each make another, which takes 0.1 ms. Inside a region libgomp
// refuses, and nothing changes.
void let_go_of_team() {
  if (team_size > 1) omp_pause_resource_all(omp_pause_soft);
  team_size = 1;
  last_region = {};
}
// When the library is loaded: older C libraries hold a lock while handlers run, and registering one takes it.
[[maybe_unused]] const int team_handler = ::pthread_atfork(let_go_of_team, nullptr, nullptr);

// Number of threads, of `wanted`, that can be started now, all at once.
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

void TeamPatience::ran(std::chrono::nanoseconds worked, std::chrono::nanoseconds waited) {
  if (waited < worked + kLate) {
    on_time_ = std::min(on_time_ + 1, kMostWithout);
    return;
  }
  still_without_ = without_ = on_time_ < without_ ? std::min(2 * without_, kMostWithout) : kWithout;
  on_time_ = 0;
}

int openmp_threads() {
  return omp_get_max_threads();
}

int openmp_team_of(int threads) {
  if (threads <= team_size || omp_in_parallel()) return threads;  // a region within one has a thread
  const int team = team_size + startable(threads - team_size);
  team_size = team;
  return team;
}

void share_openmp(bool shares) {
  shared = shares;
}

bool work_in_waiting_team(int members, void (*member)(void* context, int index), void* context) {
  const auto began = Clock::now();
  if (!shared.load(std::memory_order_relaxed) && began - last_region > kTeamWaits) return false;
  if (patience.leaves()) return false;
  auto done = began;
#pragma omp parallel num_threads(openmp_team_of(members))
  {
    member(context, omp_get_thread_num());
    if (omp_get_thread_num() == 0) done = Clock::now();
  }
  last_region = Clock::now();
  patience.ran(done - began, last_region - done);
  return true;
}

// Threads that a team gets later are made by one that holds signals, and begin so.
SignalsHeld::SignalsHeld(int threads) {
  sigset_t waiting;
  sigfillset(&waiting);
  for (const int error : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&waiting, error);
  pthread_sigmask(SIG_BLOCK, &waiting, &before_);
  thread_local int held = 1;  // threads of this thread's team
  if (threads <= held) return;
  held = threads;
#pragma omp parallel num_threads(threads)
  if (omp_get_thread_num() != 0) pthread_sigmask(SIG_BLOCK, &waiting, nullptr);
}

SignalsHeld::~SignalsHeld() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (team_size > 1) last_region = Clock::now();
}

}  // namespace convtune::cpu
