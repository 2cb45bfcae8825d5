// The threads of a cluster: who runs next, where warps meet, barriers by number, and what it says when none
// can go on.
#include "cluster.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "device_line.h"

extern "C" {
host_gpu::Position* host_gpu_position = nullptr;
}

namespace host_gpu {

Cluster* cluster = nullptr;
Thread* current = nullptr;
Settings settings;
std::string failure;

namespace {

void switch_to(Thread* next) {  // null: to run()
  Thread* const from = current;
  current = next;
  host_gpu_position = next;
  switch_fibers(from ? &from->fiber : nullptr, next ? &next->fiber : nullptr);
}

void clear_ready(Thread* thread) {
  Warp& warp = *thread->warp;
  warp.ready &= ~(1u << thread->lane);
  if (warp.ready == 0) cluster->ready_warps[warp.index / 64] &= ~(1ull << (warp.index % 64));
}

Thread* thread_of(Warp& warp, int lane) {
  return &cluster->threads[static_cast<std::size_t>(warp.first_thread + lane)];
}

// Place of the one that has so many ones below it.
unsigned place_of_one(std::uint64_t bits, unsigned before) {
  return static_cast<unsigned>(std::countr_zero(_pdep_u64(1ull << before, bits)));
}

Thread* any_ready() {
  unsigned count = 0;
  for (const std::uint64_t some : cluster->ready_warps) count += static_cast<unsigned>(std::popcount(some));
  if (count == 0) return nullptr;
  unsigned before = random_below(count);
  std::size_t word = 0;
  for (unsigned here; before >= (here = static_cast<unsigned>(std::popcount(cluster->ready_warps[word])));
       ++word)
    before -= here;
  Warp& warp = cluster->warps[64 * word + place_of_one(cluster->ready_warps[word], before)];
  const unsigned lane = random_below(static_cast<unsigned>(std::popcount(warp.ready)));
  return thread_of(warp, static_cast<int>(place_of_one(warp.ready, lane)));
}

// The next one of this warp, else of the next warp that has one, round and round.
Thread* next_ready() {
  if (settings.order == Order::random) return any_ready();
  const bool backwards = settings.order == Order::backwards;
  const auto lane_of = [&](unsigned lanes) {
    return backwards ? 31 - std::countl_zero(lanes) : std::countr_zero(lanes);
  };
  if (current && current->warp->ready) return thread_of(*current->warp, lane_of(current->warp->ready));
  const int words = (static_cast<int>(cluster->warps.size()) + 63) / 64;
  const int begin = current ? current->warp->index : 0;
  for (int i = 0; i <= words; ++i) {
    const int word = (begin / 64 + (backwards ? words - i : i) + words) % words;
    std::uint64_t some = cluster->ready_warps[word];
    if (i == 0) some &= backwards ? (2ull << (begin % 64)) - 1 : ~0ull << (begin % 64);
    if (some == 0) continue;
    const int warp = word * 64 + (backwards ? 63 - std::countl_zero(some) : std::countr_zero(some));
    return thread_of(cluster->warps[static_cast<std::size_t>(warp)],
                     lane_of(cluster->warps[static_cast<std::size_t>(warp)].ready));
  }
  return nullptr;
}

// Who waits where, lanes that wait alike in one line.
std::string who_waits() {
  std::string text = "no thread can go on:";
  int lines = 0;
  for (Warp& warp : cluster->warps)
    for (unsigned left = warp.live; left;) {
      const Thread& first = *thread_of(warp, std::countr_zero(left));
      unsigned alike = 0;
      for (unsigned rest = left; rest; rest &= rest - 1) {
        const Thread& other = *thread_of(warp, std::countr_zero(rest));
        if (other.waits_for == first.waits_for && other.waits_at == first.waits_at) alike |= 1u << other.lane;
      }
      left &= ~alike;
      char line[200];
      std::snprintf(line, sizeof line, "\n  block %u,%u warp %u lanes %08x wait for %s (%u)", first.block.x,
                    first.block.y, first.thread.x / 32, alike, first.waits_for, first.waits_at);
      if (++lines <= 40) text += line;
    }
  return text;
}

void end_launch(std::string why) {
  failure = std::move(why);
  switch_to(nullptr);
}

// The current thread cannot: another one runs, or what is under way ends.
void go_on() {
  while (true) {
    Thread* const next = next_ready();
    if (next && next == current) return;
    if (next) return switch_to(next);
    if (cluster->live == 0)
      return end_launch(cluster->under_way.empty() ? "" : "copies are under way when the last thread ends");
    if (!end_one_under_way()) return end_launch(who_waits());
  }
}

void release(NamedBarrier& barrier) {
  know_each_other(barrier.came, barrier.waiting);
  for (Thread* waiting : barrier.waiting) {
    waiting->answer = barrier.any;
    set_ready(waiting);
  }
  barrier = {};
}

// Memory in which watch.cpp keeps what threads know that have come to the cluster's barrier in a phase:
// nobody comes to the next but one before all have left it.
unsigned cluster_barrier_of(int phase) {
  return ~0u - static_cast<unsigned>(phase % 2);
}
void end_cluster_barrier() {
  for (Thread* waiting : cluster->at_barrier) {
    learn_from_mbarrier(*waiting, cluster_barrier_of(cluster->phase));
    set_ready(waiting);
  }
  cluster->at_barrier.clear();
  cluster->arrived = 0;
  ++cluster->phase;
}

}  // namespace

void set_ready(Thread* thread) {
  Warp& warp = *thread->warp;
  warp.ready |= 1u << thread->lane;
  cluster->ready_warps[warp.index / 64] |= 1ull << (warp.index % 64);
}

void wait_for(const char* what, unsigned at) {
  current->waits_for = what, current->waits_at = at;
  clear_ready(current);
  go_on();
}

void may_switch() {
  if (settings.order != Order::random || random_below(16) != 0) return;
  Thread* const next = any_ready();  // itself, perhaps
  if (next && next != current) switch_to(next);
}

void begin_threads() {
  current = nullptr;
  switch_to(next_ready());
  current = nullptr, host_gpu_position = nullptr;
}

void run_thread() {
  fiber_began();
  launched->entry(launched->arguments);
  Thread& mine = *current;
  Warp& warp = *mine.warp;
  end_copies_of(mine);
  if (!mine.stores.empty()) fail("a thread ends while its copies to global memory read");
  if (!warp.products.empty()) fail("a thread ends while its warp's products are under way");
  mine.fiber.ended = true;
  warp.live &= ~(1u << mine.lane);
  if (warp.arrived && warp.meeting != Meeting::syncwarp)
    fail("a lane ends while others of its warp are at an instruction for all");
  if (warp.arrived && warp.arrived == warp.live) {  // who has ended need not come
    warp.arrived = 0;
    for (unsigned left = warp.live; left; left &= left - 1)
      set_ready(thread_of(warp, std::countr_zero(left)));
  }
  --mine.of->live, --cluster->live;
  NamedBarrier& all = mine.of->barriers[0];
  if (all.threads == 0 && all.arrived > 0 && all.arrived == mine.of->live) release(all);
  if (mine.of->live == 0)
    for (const NamedBarrier& barrier : mine.of->barriers)
      if (barrier.arrived > 0)
        fail("a barrier of %u threads has %u when its block ends", barrier.threads, barrier.arrived);
  if (mine.arrived_in >= 0) fail("it ends between the halves of the cluster's barrier");
  if (cluster->arrived > 0 && cluster->arrived == cluster->live) end_cluster_barrier();
  clear_ready(&mine);
  go_on();
}

void fail(const char* format, ...) {
  char text[400];
  std::va_list list;
  va_start(list, format);
  std::vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (!current) {  // outside of a launch nobody could be told
    std::fprintf(stderr, "%s\n", text);
    std::abort();
  }
  char where[100];
  std::snprintf(where, sizeof where, " (block %u,%u,%u thread %u)", current->block.x, current->block.y,
                current->block.z, current->thread.x);
  end_launch(text + std::string(where) + device_line_of_caller(current->fiber));
  std::abort();  // nobody switches back
}

void nothing_together(void* const*) {}

void meet(Meeting what, void* brought, void (*together)(void* const*)) {
  Warp& warp = *current->warp;
  if (warp.arrived == 0) {
    std::fill(std::begin(warp.brought), std::end(warp.brought), nullptr);
    warp.meeting = what;
  } else if (warp.meeting != what) {
    fail("lanes of a warp are at different instructions for all of them");
  }
  warp.brought[current->lane] = brought;
  warp.arrived |= 1u << current->lane;
  if (warp.arrived != warp.live) return wait_for("the rest of the warp", static_cast<unsigned>(what));
  warp.arrived = 0;
  together(warp.brought);
  if (what == Meeting::syncwarp) warp_met(warp);  // others order no memory
  for (unsigned left = warp.live; left; left &= left - 1) set_ready(thread_of(warp, std::countr_zero(left)));
  may_switch();
}

void sync_lanes(unsigned mask) {
  if (mask == ~0u) return meet(Meeting::syncwarp, nullptr, nothing_together);
  Warp& warp = *current->warp;
  if (!(mask >> current->lane & 1) || (mask & ~warp.live)) fail("__syncwarp(%08x) of other lanes", mask);
  std::vector<Thread*>& came = warp.partial[mask];
  came.push_back(current);
  if (came.size() < static_cast<unsigned>(std::popcount(mask))) return wait_for("lanes of the warp", mask);
  know_each_other(came, came);
  for (Thread* thread : came) set_ready(thread);
  warp.partial.erase(mask);
  may_switch();
}

int barrier(unsigned id, unsigned threads, bool waits, int predicate) {
  Block& block = *current->of;
  if (id >= 16 || threads % 32 != 0) fail("barrier %u of %u threads", id, threads);
  NamedBarrier& barrier = block.barriers[id];
  if (barrier.arrived > 0 && barrier.threads != threads)
    fail("barrier %u of %u and of %u threads", id, barrier.threads, threads);
  barrier.threads = threads, barrier.any |= predicate, ++barrier.arrived;
  barrier.came.push_back(current);
  if (waits) barrier.waiting.push_back(current);
  if (barrier.arrived == (threads ? threads : block.live)) {
    const int any = barrier.any;
    release(barrier);
    may_switch();
    return any;
  }
  if (!waits) return 0;
  wait_for("a barrier of the block", id);
  return current->answer;
}

void leave_registers(unsigned count) {
  meet(Meeting::registers, nullptr, nothing_together);
  Warp& warp = *current->warp;
  Block& block = *current->of;
  if (count == warp.registers) return;  // another lane was here
  if (count > warp.registers) fail("a warp of %u registers leaves all but %u", warp.registers, count);
  block.left_registers += warp.registers - count, warp.registers = count;
  for (Thread* waiting : block.want_registers) set_ready(waiting);
  block.want_registers.clear();
}

void take_registers(unsigned count) {
  meet(Meeting::registers, nullptr, nothing_together);
  Warp& warp = *current->warp;
  Block& block = *current->of;
  while (warp.registers < count) {  // more than launch bounds allow, and no other lane has taken them yet
    if (block.left_registers >= count - warp.registers) {
      block.left_registers -= count - warp.registers, warp.registers = count;
      return;
    }
    block.want_registers.push_back(current);
    wait_for("registers that no other warp has left", count);
  }
}

void cluster_arrive(bool tells) {
  if (current->arrived_in >= 0) fail("it comes to the cluster's barrier twice");
  current->arrived_in = cluster->phase;
  if (tells) tell_mbarrier(cluster_barrier_of(cluster->phase));
  if (++cluster->arrived == cluster->live) end_cluster_barrier();
}
void cluster_wait() {
  const int phase = std::exchange(current->arrived_in, -1);
  if (phase < 0) fail("it waits at the cluster's barrier and has not come to it");
  if (phase < cluster->phase) return learn_from_mbarrier(*current, cluster_barrier_of(phase));
  cluster->at_barrier.push_back(current);
  wait_for("the cluster's barrier", 0);
}
void cluster_sync() {
  cluster_arrive(true);
  cluster_wait();
}

unsigned cluster_rank() {
  return current->of->rank;
}
void check_lives(unsigned address) {
  if (cluster->blocks[address / kWindow].live == 0)
    fail("shared address %u is of a block that has ended", address);
}

}  // namespace host_gpu
