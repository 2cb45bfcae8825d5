// Barriers that count in shared memory, and copies that are under way: cp.async, bulk copies, and what has
// yet to signal a barrier. Where a copy goes is spoilt when it is issued, so that a read too early shows, and
// so does a copy that is issued while its place is still read.
#include <algorithm>

#include "cluster.h"

namespace host_gpu {
namespace {

struct Mbarrier {  // in its 8 bytes
  static constexpr std::uint64_t kMagic = 5;
  std::uint64_t phase : 1, pending : 20, count : 20, magic : 3;
  std::int64_t bytes : 20;
};
static_assert(sizeof(Mbarrier) == 8);

Mbarrier& mbarrier_at(unsigned address) {
  auto& barrier = *reinterpret_cast<Mbarrier*>(at(address, 8, 8));
  check_lives(address);
  if (barrier.magic != Mbarrier::kMagic) fail("there is no mbarrier at shared address %u", address);
  return barrier;
}

void complete_if_done(Mbarrier& barrier, unsigned address) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
  std::erase_if(cluster->waiters, [&](const Waiter& waiter) {
    if (waiter.barrier != address || waiter.parity == barrier.phase) return false;
    learn_from_mbarrier(*waiter.thread, address);
    set_ready(waiter.thread);
    return true;
  });
}

void count_bytes(unsigned address, std::int64_t bytes) {
  constexpr std::int64_t kMost = 1 << 19;
  Mbarrier& barrier = mbarrier_at(address);
  const std::int64_t sum = barrier.bytes + bytes;
  if (sum >= kMost || sum < -kMost) fail("mbarrier %u counts more bytes than it can", address);
  barrier.bytes = sum;
}

void arrive(unsigned address) {
  Mbarrier& barrier = mbarrier_at(address);
  if (barrier.pending == 0) fail("one arrival too many at mbarrier %u", address);
  --barrier.pending;
  complete_if_done(barrier, address);
}

void do_copy(const Copy& copy) {
  unsigned char* const to = at(copy.to, copy.bytes, copy.bytes);
  if (copy.source_bytes > 0) std::memcpy(to, copy.from, copy.source_bytes);
  std::memset(to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
  copy_ends(copy.to, copy.bytes);
}

bool is_awaited(unsigned barrier) {
  return std::any_of(cluster->waiters.begin(), cluster->waiters.end(),
                     [&](const Waiter& waiter) { return waiter.barrier == barrier; });
}

using UnderWay = decltype(Cluster::under_way);
void end_one_of(UnderWay::iterator barrier, std::size_t index) {
  auto& works = barrier->second;
  const Work work = std::move(works[index]);
  works.erase(works.begin() + static_cast<std::ptrdiff_t>(index));
  if (works.empty()) cluster->under_way.erase(barrier);
  work();
}

void end_any() {
  const auto barrier =
      std::next(cluster->under_way.begin(), random_below(static_cast<unsigned>(cluster->under_way.size())));
  end_one_of(barrier, random_below(static_cast<unsigned>(barrier->second.size())));
}

void store_later(Work work) {
  if (settings.async == Async::eager) return work();
  current->stores.add(std::move(work));
}

void load_later(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  spoil(to, bytes);
  later(barrier, [=] {
    std::memcpy(at(to, bytes, 16), from, bytes);
    written_by_copy(to, bytes);
    bytes_came(barrier, bytes);
  });
}

void check_bulk(unsigned shared, const void* global, unsigned bytes) {
  if (shared % 16 || bytes % 16 || reinterpret_cast<std::uintptr_t>(global) % 16 || bytes == 0)
    fail("a bulk copy of %u bytes between %p and shared address %u", bytes, global, shared);
}

}  // namespace

// ---- Functions that others of this folder call ----

void spoil(unsigned to, unsigned bytes) {
  if (settings.async == Async::eager) return;
  std::memset(at(to, bytes, 1), kSpoilt, bytes);
  copy_begins(to, bytes);
}

void later(unsigned barrier, Work work) {
  if (settings.async == Async::eager) return work();
  cluster->under_way[barrier].push_back(std::move(work));
  if (settings.async == Async::any)
    while (!cluster->under_way.empty() && random_below(3) == 0) end_any();
}

bool end_one_under_way() {
  for (auto barrier = cluster->under_way.begin(); barrier != cluster->under_way.end(); ++barrier) {
    if (!is_awaited(barrier->first)) continue;
    const auto count = static_cast<unsigned>(barrier->second.size());
    end_one_of(barrier, settings.order == Order::random      ? random_below(count)
                        : settings.order == Order::backwards ? count - 1
                                                             : 0);
    return true;
  }
  return false;
}

void bytes_came(unsigned barrier, unsigned bytes) {
  count_bytes(barrier, -static_cast<std::int64_t>(bytes));
  complete_if_done(mbarrier_at(barrier), barrier);
}

void end_copies_of(Thread& thread) {
  for (const auto& group : thread.copies.committed)
    for (const Copy& copy : group) do_copy(copy);
  for (const Copy& copy : thread.copies.open) do_copy(copy);
}

// ---- Functions that device code calls ----

void mbarrier_init(unsigned address, unsigned arrivals) {
  auto& barrier = *reinterpret_cast<Mbarrier*>(at(address, 8, 8));
  if (arrivals == 0 || arrivals >= 1 << 20) fail("an mbarrier of %u arrivals", arrivals);
  barrier.phase = 0, barrier.pending = arrivals, barrier.count = arrivals, barrier.bytes = 0;
  barrier.magic = Mbarrier::kMagic;
}
void mbarrier_arrive(unsigned barrier, unsigned expected_bytes) {
  tell_mbarrier(barrier);
  if (expected_bytes) count_bytes(barrier, expected_bytes);
  arrive(barrier);
  may_switch();
}
void mbarrier_wait(unsigned barrier, unsigned parity) {
  if (parity > 1) fail("parity %u", parity);
  if (mbarrier_at(barrier).phase != parity) {
    learn_from_mbarrier(*current, barrier);
    return may_switch();
  }
  cluster->waiters.push_back({current, barrier, parity});
  wait_for(parity ? "an mbarrier's odd phase" : "an mbarrier's even phase", barrier);
}

void cp_async(unsigned to, const void* from, unsigned bytes, unsigned source_bytes) {
  if (source_bytes > bytes) fail("a cp.async of %u bytes into %u", source_bytes, bytes);
  if (to % bytes || reinterpret_cast<std::uintptr_t>(from) % bytes)
    fail("a cp.async of %u bytes from %p to shared address %u", bytes, from, to);
  at(to, bytes, bytes);
  if (host_gpu_watches) will_write(to, bytes, false), check_global(from, source_bytes, "it copies");
  const Copy copy{to, bytes, source_bytes, from};
  if (settings.async == Async::eager) return do_copy(copy);
  spoil(to, bytes);
  current->copies.add(copy);
}
void cp_async_commit() {
  if (settings.async != Async::eager) current->copies.commit();
}
void cp_async_wait(int pending) {
  current->copies.wait(pending, [](const Copy& copy) {
    do_copy(copy);
    ended_by_waiting(copy.to, copy.bytes);
  });
}
// All of this thread so far, committed or not.
void cp_async_arrive(unsigned barrier) {
  tell_mbarrier(barrier);
  std::vector<Copy> copies;
  const auto take = [&](std::vector<Copy>& group) {
    copies.insert(copies.end(), group.begin(), group.end());
    group.clear();
  };
  for (std::vector<Copy>& group : current->copies.committed) take(group);
  take(current->copies.open);
  later(barrier, [copies = std::move(copies), barrier] {
    for (const Copy& copy : copies) do_copy(copy);
    arrive(barrier);
  });
}

void bulk_load(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  check_bulk(to, from, bytes);
  if (host_gpu_watches) check_global(from, bytes, "it copies");
  load_later(to, from, bytes, barrier);
}
void bulk_load_to_all(unsigned to, const void* from, unsigned bytes, unsigned barrier, unsigned mask) {
  check_bulk(to, from, bytes);
  if (host_gpu_watches) check_global(from, bytes, "it copies");
  for (unsigned rank = 0; rank < kMostBlocks; ++rank) {
    if (!(mask >> rank & 1)) continue;
    if (rank >= cluster->blocks.size())
      fail("a copy to block %u of a cluster of %zu", rank, cluster->blocks.size());
    load_later(to % kWindow + rank * kWindow, from, bytes, barrier % kWindow + rank * kWindow);
  }
}
void bulk_send(unsigned to, unsigned from, unsigned bytes, unsigned barrier) {
  if (to % 16 || from % 16 || bytes % 16 || bytes == 0 || to / kWindow != barrier / kWindow)
    fail("a bulk copy of %u bytes from shared address %u to %u, barrier %u", bytes, from, to, barrier);
  check_fenced(from, bytes, "a bulk copy");
  load_later(to, at(from, bytes, 16), bytes, barrier);
}
void bulk_store(void* to, unsigned from, unsigned bytes) {
  check_bulk(from, to, bytes);
  if (host_gpu_watches) check_global(to, bytes, "it copies to");
  check_fenced(from, bytes, "a bulk copy");
  store_later([=] { std::memcpy(to, at(from, bytes, 16), bytes); });
}
void bulk_commit() {
  if (settings.async != Async::eager) current->stores.commit();
}
void bulk_wait(int pending) {
  current->stores.wait(pending, [](const Work& work) { work(); });
}

void load_words(void* to, unsigned address, unsigned bytes) {
  const unsigned char* const from = at(address, bytes, bytes);
  if (host_gpu_watches) will_read(address, bytes);
  std::memcpy(to, from, bytes);
}
// Any order of them gives the same: no race among them.
void atomic_min(unsigned address, int value) {
  int& place = *reinterpret_cast<int*>(at(address, 4, 4));
  if (host_gpu_watches) will_write(address, 4, true);
  place = std::min(place, value);
}
void atomic_max(unsigned address, int value) {
  int& place = *reinterpret_cast<int*>(at(address, 4, 4));
  if (host_gpu_watches) will_write(address, 4, true);
  place = std::max(place, value);
}

}  // namespace host_gpu
