// See thread_pool.h. A loop has a place in a table that is never freed, so a worker may look at one that has
// ended. All that changes hands is in atomics, on which threads also sleep (futex): no lock is held at a
// fork, and ThreadSanitizer sees all of it.
#include "cpu/base/thread_pool.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>

#include "base/fork_gate.h"
#include "cpu/base/processors.h"

namespace convtune::cpu {
namespace {

using Word = std::atomic<std::uint32_t>;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// A worker without a loop looks for one for so long before it sleeps, if the last one came as soon; for
// longer where nobody else has wanted its processor for a while.
constexpr microseconds kLook{50}, kLongLook{1000};
// It was not on a processor between two looks at the clock that lie further apart.
constexpr microseconds kAway{50};
// A worker offers its processor after so long, and leaves its loop before it does: Linux takes a processor
// away after 1.4 ms at the least. It stays longer where nobody took the offer.
constexpr microseconds kStint{1000}, kLongestStint{32000};
// So long a caller waits awake for those that have begun.
constexpr microseconds kWait{100};
// Threads that the system refused are asked for again after so long.
constexpr std::chrono::seconds kRefused{1};

// Parts of a loop's state: how many more workers may join, how many are inside, that its caller sleeps until
// they are not, and that it is over.
constexpr std::uint32_t kSeat = 1, kSeats = 0xfff, kInside = 0x1000, kAllInside = 0xfff000,
                        kSleeps = 1U << 30, kOver = 1U << 31;

struct alignas(64) Loop {
  Word state = kOver;
  int members = 0, processor = 0;  // processor: the caller's
  void (*member)(void* context, int index) = nullptr;
  void* context = nullptr;
};

constexpr int kLoops = 32;  // at a time; the caller of another one is alone
constinit std::array<Loop, kLoops> loops;
alignas(64) constinit Word taken = 0;  // a bit for each of them that is in use
alignas(64) constinit Word open = 0;   // a bit for each that may have seats; workers sleep on this
alignas(64) constinit std::atomic<int> looking = 0, asleep = 0;  // workers that do so
alignas(64) constinit std::atomic<int> workers = 0;
constinit std::atomic<bool> starting = false;
constinit std::atomic<Clock::rep> refused_until = 0;

// A worker's number from 1 on, since when it has worked without a pause, and how long it may.
thread_local constinit int number = 0;
thread_local constinit Clock::time_point stint_began;
thread_local constinit Clock::duration stint = kStint;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

void sleep_on(Word& word, std::uint32_t value) {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake_on(Word& word, int count) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Two of those that sleep, each of which wakes two more where there are seats.
void wake_for(int seats) {
  const int wanted = std::min({2, seats - looking.load(), asleep.load()});
  if (wanted > 0) wake_on(open, wanted);
}

// Lets others have this worker's processor, if they want it.
void offer_processor() {
  const auto before = Clock::now();
  ::sched_yield();
  stint_began = Clock::now();
  stint = stint_began - before > kAway ? kStint : std::min<Clock::duration>(2 * stint, kLongestStint);
}

long preemptions() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

// Works on a loop that has a seat. Returns whether it did, and on which processor its caller was.
bool join(int at, int& processor) {
  Loop& loop = loops[static_cast<std::size_t>(at)];
  std::uint32_t state = loop.state.load(std::memory_order_relaxed);
  do {
    if ((state & kSeats) == 0 || (state & kOver) != 0) return false;
  } while (!loop.state.compare_exchange_weak(state, state - kSeat + kInside, std::memory_order_acquire,
                                             std::memory_order_relaxed));
  looking.fetch_sub(1);
  processor = loop.processor;
  const auto seats = static_cast<int>(state & kSeats);
  if (seats > 1) wake_for(seats - 1);
  if (seats == 1) open.fetch_and(~(1U << at));
  loop.member(loop.context, 1 + (number - 1) % (loop.members - 1));
  const auto worked = Clock::now() - stint_began;
  const bool leaves = worked > stint;
  looking.fetch_add(1);
  if (leaves) open.fetch_or(1U << at);  // the seat is free again, for this worker, too
  state = loop.state.fetch_sub(leaves ? kInside - kSeat : kInside, std::memory_order_release);
  if ((state & kSleeps) != 0 && (state & kAllInside) == kInside) wake_on(loop.state, 1);
  if (worked > kStint) {
    thread_local long before = 0;
    if (const long now = preemptions(); now != before) before = now, stint = kStint;
  }
  if (worked > kStint / 2) offer_processor();
  return true;
}

// Moves this thread to another processor, if it may run on one: where a caller works, the system lets it run
// only once the caller sleeps, and wakes it there the next time.
void leave_processor(int processor) {
  cpu_set_t all, others;
  if (::sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  others = all;
  CPU_CLR(processor, &others);
  ::sched_setaffinity(0, sizeof others, &others);
  ::sched_setaffinity(0, sizeof all, &all);
}

// Returns when there may be a loop. Looks for it where that is worth it: the last one came soon, and no other
// process wants the processor.
void wait_for_loop(bool awake, int callers_processor) {
  const bool undisturbed = stint >= 8 * kStint;
  const Clock::duration longest = undisturbed ? kLongLook : kLook;
  const auto start = Clock::now();
  auto last = start;
  awake = awake || undisturbed;
  if (::sched_getcpu() == callers_processor) leave_processor(callers_processor);
  for (int i = 1; awake; ++i) {
    if (open.load(std::memory_order_relaxed) != 0) return;
    relax();
    if (i % 16 != 0) continue;
    const auto now = Clock::now();
    if (now - last > kAway) stint = kStint;
    awake = now - start < longest && now - last < kAway;
    last = now;
    if (undisturbed && now - stint_began > kLook) {
      offer_processor();
      awake = awake && stint > kStint;
      last = stint_began;
    }
  }
  asleep.fetch_add(1);
  looking.fetch_sub(1);
  if (open.load() == 0) sleep_on(open, 0);
  stint_began = Clock::now();
  looking.fetch_add(1);
  asleep.fetch_sub(1);
}

void* work(void* own_number) {
  ::pthread_setname_np(::pthread_self(), "convtune");
  number = static_cast<int>(reinterpret_cast<std::intptr_t>(own_number));
  int processor = -1;
  auto idle_since = stint_began = Clock::now();
  for (bool soon = true;;) {
    bool joined = false;
    const auto found = Clock::now();
    for (std::uint32_t bits = open.load(std::memory_order_acquire); bits != 0; bits &= bits - 1)
      joined |= join(std::countr_zero(bits), processor);
    if (joined) soon = found - idle_since < kLook, idle_since = Clock::now();
    wait_for_loop(soon, processor);
  }
}

// The code of a thread that never ends must stay, whoever unloads the library that it is in.
void keep_code() {
  Dl_info info;
  if (::dladdr(reinterpret_cast<const void*>(&work), &info) != 0)
    ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

// Workers begin with all signals blocked but those that tell of an error in the code itself: handlers are the
// program's, and run on its threads.
void start_workers(int wanted) {
  if (workers.load() >= wanted || Clock::now().time_since_epoch().count() < refused_until.load() ||
      starting.exchange(true))
    return;
  const NoForks until_started;
  if (workers.load() == 0) keep_code();
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int error : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&blocked, error);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  while (workers.load() < wanted) {
    looking.fetch_add(1);
    pthread_t one;
    if (::pthread_create(&one, nullptr, work, reinterpret_cast<void*>(std::intptr_t{workers.load()} + 1)) !=
        0) {
      looking.fetch_sub(1);
      refused_until = (Clock::now() + kRefused).time_since_epoch().count();
      break;
    }
    ::pthread_detach(one);
    workers.fetch_add(1);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  starting = false;
}

// A forked child has the thread that forked and no other; its loop, if it is inside of one, is its own now.
void begin_anew() {
  for (Loop& loop : loops) loop.state = kOver;
  taken = 0, open = 0, looking = 0, asleep = 0, workers = 0, starting = false, refused_until = 0;
}
[[maybe_unused]] const int fork_handler = ::pthread_atfork(nullptr, nullptr, begin_anew);

// Callers at the same time have all processors between them.
void start_workers_for(int seats) {
  const int idle = looking.load() + asleep.load(), all = workers.load();
  if (idle >= seats) return;
  static constinit std::atomic<int> processors = 0;
  if (processors == 0) processors = usable_processors();
  start_workers(std::max(seats, std::min(all + seats - idle, processors - 1)));
}

int take_place() {
  std::uint32_t bits = taken.load(std::memory_order_relaxed);
  while (~bits != 0) {
    const int at = std::countr_one(bits);
    if (taken.compare_exchange_weak(bits, bits | 1U << at, std::memory_order_acquire)) return at;
  }
  return -1;
}

void wait_for_workers(Loop& loop) {
  const auto inside = [&loop] { return loop.state.load(std::memory_order_acquire) & kAllInside; };
  const auto start = Clock::now();
  for (int i = 1; i % 16 != 0 || Clock::now() - start < kWait; ++i) {
    if (inside() == 0) return;
    relax();
  }
  // Asleep, this thread leaves its processor to a worker that has none.
  loop.state.fetch_or(kSleeps);
  for (std::uint32_t state; ((state = loop.state.load(std::memory_order_acquire)) & kAllInside) != 0;)
    sleep_on(loop.state, state);
}

}  // namespace

int members_of(int wanted) {
  start_workers(wanted - 1);
  return std::clamp(workers.load() + 1, 1, std::max(wanted, 1));
}

bool ought_to_leave() {
  return number != 0 && Clock::now() - stint_began > stint;
}

void work_together(int members, void (*member)(void* context, int index), void* context) {
  const int at = members > 1 ? take_place() : -1;
  if (at < 0) return member(context, 0);
  start_workers_for(members - 1);
  Loop& loop = loops[static_cast<std::size_t>(at)];
  loop.members = members, loop.member = member, loop.context = context, loop.processor = ::sched_getcpu();
  loop.state.store(static_cast<std::uint32_t>(members - 1), std::memory_order_release);
  open.fetch_or(1U << at);
  wake_for(members - 1);
  member(context, 0);
  const std::uint32_t inside = loop.state.fetch_or(kOver, std::memory_order_acquire) & kAllInside;
  open.fetch_and(~(1U << at));
  if (inside != 0) {
    wait_for_workers(loop);
    open.fetch_and(~(1U << at));  // who left may have set it
  }
  taken.fetch_and(~(1U << at), std::memory_order_release);
}

}  // namespace convtune::cpu
