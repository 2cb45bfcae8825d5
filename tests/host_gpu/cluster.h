// The blocks of a cluster while they run: what fibers, barriers, copies and products share. Files of this
// folder only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fibers.h"
#include "machine.h"

namespace host_gpu {

// When asynchronous copies and products are done: at once; when somebody waits for them and nothing else can
// run; or at any time, in any order.
enum class Async { eager, late, any };
// In which order threads that can run do.
enum class Order { forwards, backwards, random };

struct Settings {
  Async async = Async::eager;
  Order order = Order::forwards;
  bool watches = false;        // fences, races and spoilt words
  bool begins_as_nan = false;  // shared memory of a block, instead of as finite numbers
  std::uint64_t seed = 1;
  int multiprocessors = 132, capability = 90;
};
// "late watch seed=3", in any order; throws std::invalid_argument of another word.
Settings settings_of(const std::string& text);

struct Launch {
  void (*entry)(void** arguments) = nullptr;
  void** arguments = nullptr;
  std::string kernel;
  std::array<unsigned, 3> grid{}, block{};
  unsigned shared_bytes = 0, cluster = 1;
  unsigned registers = 0;  // a thread's, by the launch bounds; 0: there are none
};
// Why it failed, or nothing.
std::string run(const Launch& launch, const Settings& settings);

// ---- Inside a launch ----
constexpr int kMostBlocks = 16, kMostWarps = kMostBlocks * 32;
using Work = std::function<void()>;

struct Block;
struct Warp;
struct Copy {  // a cp.async
  unsigned to, bytes, source_bytes;
  const void* from;
};
struct Product {  // a wgmma of a warp
  Wgmma what;
  unsigned window;
  int quarter;  // for the warpgroup
  unsigned fenced;
  std::array<float*, 32> sums;
  std::array<std::array<unsigned, 4>, 32> a;
};
// Groups of what is under way. Each thread has some, so none takes memory before its first.
template <class T>
struct Groups {
  std::vector<std::vector<T>> committed;
  std::vector<T> open;
  void add(T one) { open.push_back(std::move(one)); }
  void commit() { committed.push_back(std::exchange(open, {})); }
  // Ends the oldest until so many are left, beside the open one, which no wait counts.
  template <class End>
  void wait(int pending, const End& end) {
    while (std::ssize(committed) > pending) {
      for (const T& one : committed.front()) end(one);
      committed.erase(committed.begin());
    }
  }
  bool empty() const {
    return open.empty() &&
           std::all_of(committed.begin(), committed.end(), [](const auto& group) { return group.empty(); });
  }
};

struct Thread : Position {
  Fiber fiber;
  Block* of = nullptr;
  Warp* warp = nullptr;
  int lane = 0, number = 0;  // in the warp; in the cluster
  const char* waits_for = "";
  unsigned waits_at = 0;
  int answer = 0;       // per barrier's predicate
  unsigned fenced = 0;  // when it fenced last, as written(…) counts
  int arrived_in = -1;  // phase of the cluster's barrier that it has come to and not waited for
  Groups<Copy> copies;
  Groups<Work> stores;
};
struct Warp {
  Block* of = nullptr;
  int index = 0, first_thread = 0;
  unsigned ready = 0, live = 0, arrived = 0;  // lanes
  unsigned registers = 0;                     // of a thread
  Meeting meeting{};
  void* brought[32] = {};
  std::map<unsigned, std::vector<Thread*>> partial;  // by their mask, those who wait for some lanes alone
  Groups<Product> products;
  std::vector<unsigned> seen;  // how far it knows each warp to be (watch.cpp)
};
struct NamedBarrier {
  unsigned arrived = 0, threads = 0;
  int any = 0;
  std::vector<Thread*> waiting, came;
};
struct Block {
  unsigned rank = 0, live = 0;
  unsigned left_registers = 0;  // that warps have left and none has taken, of a thread
  std::vector<Thread*> want_registers;
  NamedBarrier barriers[16];
};
struct Waiter {  // for a phase of an mbarrier
  Thread* thread;
  unsigned barrier, parity;
};
struct Cluster {
  std::vector<Block> blocks;
  std::vector<Warp> warps;
  std::vector<Thread> threads;
  std::vector<Waiter> waiters;
  std::map<unsigned, std::deque<Work>> under_way;  // by the mbarrier that each signals
  std::vector<Thread*> at_barrier;                 // those who wait at the cluster's
  unsigned arrived = 0;                            // at it
  int phase = 0;                                   // for it
  unsigned live = 0;
  std::uint64_t ready_warps[kMostWarps / 64] = {};
};

extern Cluster* cluster;
extern Thread* current;
extern Settings settings;
extern const Launch* launched;
extern std::string failure;

unsigned random_below(unsigned count);
void set_ready(Thread* thread);
// The current thread waits: others run until somebody makes it ready.
void wait_for(const char* what, unsigned at);
// Another thread may run here, in a random order.
void may_switch();
void run_thread();     // a fiber's
void begin_threads();  // returns when all have ended, or one has failed

// ---- Copies (copies.cpp) ----
void spoil(unsigned to, unsigned bytes);  // a copy there is under way
void later(unsigned barrier, Work work);
bool end_one_under_way();  // that somebody waits for; false where there is none
void bytes_came(unsigned barrier, unsigned bytes);
void end_copies_of(Thread& thread);

// ---- Global memory (accesses.cpp) ----
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kGuard = 0;  // bytes around a piece; the sanitizer sees reads and writes there
#else
constexpr std::size_t kGuard = 256;
#endif
void remember_memory(std::uintptr_t begin, std::size_t bytes);
void forget_memory(std::uintptr_t begin);
void see_canaries(std::uintptr_t begin, const void* from, std::size_t bytes);  // if they are
// Fails where some of it lies in the guards or canaries of a piece.
void check_global(const void* address, unsigned bytes, const char* does);

// ---- Handles what is watched (watch.cpp) ----
void begin_watching();
void copy_begins(unsigned to, unsigned bytes);
void copy_ends(unsigned to, unsigned bytes);
void ended_by_waiting(unsigned to,
                      unsigned bytes);  // others must come behind the current thread, which waited
void written_by_copy(unsigned to, unsigned bytes);  // and it ends
// The thread that wrote a byte there that neither it nor one with this time has fenced since; or -1.
int unfenced_writer(unsigned from, unsigned bytes, unsigned fenced);
bool is_ordered(unsigned from, unsigned bytes);  // the current thread comes behind whoever wrote there
void check_fenced(unsigned from, unsigned bytes, const char* what);
// Makes the threads at a barrier know of all that came to it.
void know_each_other(const std::vector<Thread*>& came, const std::vector<Thread*>& wait);
void warp_met(Warp& warp);
void tell_mbarrier(unsigned barrier);
void learn_from_mbarrier(const Thread& thread, unsigned barrier);

}  // namespace host_gpu
