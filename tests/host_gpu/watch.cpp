// Questions to every access of shared memory where a launch watches: whether a copy is under way to what it
// reads, whether a barrier stands behind whoever wrote it, and whether the asynchronous proxy has been told
// of what it reads.
//
// Who is ordered behind whom is known by warp: each counts its own epochs, and barriers tell others how far
// it has come (vector clocks). Lanes of a warp are ordered by the instructions at which they meet. What plain
// C++ reads and writes comes here from accesses.cpp.
#include <algorithm>
#include <bitset>

#include "cluster.h"

namespace host_gpu {
namespace {

constexpr unsigned short kAllLanes = 32;      // they came together
constexpr unsigned short kSeveralLanes = 33;  // each by itself
struct Access {
  unsigned epoch = 0;  // for its warp; 0: by a copy, or never
  unsigned short warp = 0, lane = 0;
};
struct Place {                      // 2 bytes of shared memory
  Access write, read, other_write;  // the last ones; and where two writers are not ordered, the first
  bool is_written = false, is_under_way = false, is_disputed = false, is_atomic = false;
  unsigned short disputed = 0;  // the value that the first of two writers left
  unsigned others = 0;          // in more_readers, those who are in no order with `read`; 0: none
};
struct UnfencedWrite {
  unsigned time = 0, thread = 0;  // 0: by a copy, or never
};

std::vector<Place> places;
std::vector<std::vector<Access>> more_readers;   // lists of one reader a warp, the first of which is nobody's
std::vector<UnfencedWrite> chunks;               // chunks of 16 bytes
std::map<unsigned, std::vector<unsigned>> told;  // to mbarriers
unsigned now = 0, block_bytes = 0;

unsigned index_of(unsigned address) {
  return address / kWindow * block_bytes + address % kWindow;
}
// f(place, its address) for what lies within so many bytes.
template <class F>
void for_each_place(unsigned address, unsigned bytes, const F& f) {
  Place* const first = places.data() + index_of(address) / 2;
  const unsigned count = (address % 2 + bytes + 1) / 2;
  for (unsigned i = 0; i < count; ++i) f(first[i], (address & ~1u) + 2 * i);
}

void learn(std::vector<unsigned>& seen, const std::vector<unsigned>& more) {
  for (std::size_t i = 0; i < more.size(); ++i) seen[i] = std::max(seen[i], more[i]);
}
unsigned& epoch_of(Warp& warp) {
  return warp.seen[static_cast<std::size_t>(warp.index)];
}
Access by_current() {
  return {epoch_of(*current->warp), static_cast<unsigned short>(current->warp->index),
          static_cast<unsigned short>(current->lane)};
}

// True where the current thread comes behind it.
bool is_ordered(const Access& access) {
  const Warp& mine = *current->warp;
  if (access.epoch == 0) return true;
  if (access.warp == mine.index)
    return access.lane == current->lane || access.lane == kAllLanes || mine.seen[access.warp] > access.epoch;
  return mine.seen[access.warp] >= access.epoch;
}
[[noreturn]] void fail_at(unsigned address, const char* does, const char* did, const Access& access) {
  const Warp& warp = cluster->warps[access.warp];
  const Thread& thread =
      cluster->threads[static_cast<std::size_t>(warp.first_thread + access.lane % kAllLanes)];
  fail("%s shared address %u, which thread %u of block %u %s, and no barrier stands between", does, address,
       thread.thread.x, warp.of->rank, did);
}
unsigned short value_at(unsigned address) {
  unsigned short value;
  std::memcpy(&value, host_gpu_window + address, 2);
  return value;
}

void check_order(const Place& place, unsigned address, const char* does) {
  if (!is_ordered(place.write)) fail_at(address, does, "wrote", place.write);
  if (place.is_under_way) fail("%s shared address %u, which a copy is under way to", does, address);
  if (place.is_disputed && value_at(address) != place.disputed)
    fail_at(address, "two threads wrote different numbers to", "wrote first", place.other_write);
}
// Notes a read where another of the same warp is noted; false where none is.
bool joins(Access& noted, const Access& own) {
  if (noted.epoch == 0 || noted.warp != own.warp) return false;
  const bool is_of_others = noted.epoch == own.epoch && noted.lane != own.lane;
  noted = own;
  if (is_of_others) noted.lane = kSeveralLanes;
  return true;
}
// Every reader is kept that the last one is not behind: whoever writes must come behind all of them.
void note_read(Place& place, const Access& own) {
  if (is_ordered(place.read)) {
    place.read = own;
    return;
  }
  if (joins(place.read, own)) return;
  if (place.others == 0) {
    place.others = static_cast<unsigned>(more_readers.size());
    more_readers.emplace_back();
  }
  std::vector<Access>& others = more_readers[place.others];
  if (std::none_of(others.begin(), others.end(), [&](Access& other) { return joins(other, own); }))
    others.push_back(own);
}
void check_readers(Place& place, unsigned address, const char* does) {
  if (!is_ordered(place.read)) fail_at(address, does, "reads", place.read);
  for (const Access& other : more_readers[place.others])
    if (!is_ordered(other)) fail_at(address, does, "reads", other);
  if (place.others != 0) more_readers[place.others].clear();
}
// Two writers of a place are a fault of whoever reads it: kernels have rows that nobody reads.
void note_write(Place& place, unsigned address, bool is_atomic) {
  check_readers(place, address, "it writes");
  const bool is_disputed = !is_ordered(place.write) && !(place.is_atomic && is_atomic);
  if (is_disputed) place.other_write = place.write, place.disputed = value_at(address);
  place.is_disputed = is_disputed, place.is_written = true, place.is_atomic = is_atomic;
  place.write = by_current();
}
void note_chunks(unsigned address, unsigned bytes) {
  ++now;
  for (unsigned chunk = index_of(address) / 16; chunk < (index_of(address) + bytes + 15) / 16; ++chunk)
    chunks[chunk] = {now, static_cast<unsigned>(current->number)};
}

}  // namespace

void begin_watching() {
  if (!settings.watches) return;
  block_bytes = (host_gpu_end + 15) / 16 * 16;
  places.assign(cluster->blocks.size() * block_bytes / 2, {});
  chunks.assign(cluster->blocks.size() * block_bytes / 16, {});
  told.clear();
  more_readers.assign(1, {});
  now = 0;
  for (Warp& warp : cluster->warps) {
    warp.seen.assign(cluster->warps.size(), 0);
    epoch_of(warp) = 1;
  }
}

void will_read(unsigned address, unsigned bytes) {
  may_switch();
  for_each_place(address, bytes, [](Place& place, unsigned there) {
    check_order(place, there, "it reads");
    note_read(place, by_current());
  });
}
// A matrix load reads rows that are dropped, which other lanes of its warp may be writing: if they are, they
// are anything.
bool will_load_row(unsigned address) {
  may_switch();
  bool is_known = true;
  for_each_place(address, 16, [&](Place& place, unsigned there) {
    const Access& other = place.is_disputed ? place.other_write : place.write;
    if (other.warp == current->warp->index && (place.is_disputed || !is_ordered(other)))
      is_known = false;
    else
      check_order(place, there, "it reads");
    Access own = by_current();
    own.lane = kAllLanes;
    note_read(place, own);
  });
  return is_known;
}
void will_use(unsigned address, unsigned bytes) {
  will_read(address, bytes);
  for_each_place(address, bytes, [](const Place& place, unsigned there) {
    if (!place.is_written) fail("it reads shared address %u, which nobody has written", there);
  });
}
void will_write(unsigned address, unsigned bytes, bool is_atomic) {
  may_switch();
  for_each_place(address, bytes, [&](Place& place, unsigned there) { note_write(place, there, is_atomic); });
  note_chunks(address, bytes);
}

void copy_begins(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  for_each_place(to, bytes, [](Place& place, unsigned there) {
    check_readers(place, there, "a copy goes to");
    if (!is_ordered(place.write)) fail_at(there, "a copy goes to", "wrote", place.write);
    place.is_under_way = true;
  });
}
void copy_ends(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  for_each_place(to, bytes,
                 [](Place& place, unsigned) { place.is_under_way = false, place.is_written = true; });
}
void ended_by_waiting(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  for_each_place(to, bytes, [](Place& place, unsigned) { place.write = by_current(); });
}
void written_by_copy(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  for_each_place(to, bytes, [](Place& place, unsigned) {
    place = {.read = place.read, .is_written = true, .others = place.others};
  });
  std::fill(chunks.begin() + index_of(to) / 16, chunks.begin() + (index_of(to) + bytes + 15) / 16,
            UnfencedWrite{});
}
bool is_ordered(unsigned from, unsigned bytes) {
  bool all = true;
  if (settings.watches)
    for_each_place(from, bytes, [&](const Place& place, unsigned) { all = all && is_ordered(place.write); });
  return all;
}

// ---- Fences: by who wrote it, or by who issues the copy ----

void fence_proxy_async() {
  current->fenced = ++now;
}

int unfenced_writer(unsigned from, unsigned bytes, unsigned fenced) {
  if (!settings.watches) return -1;
  for (unsigned chunk = index_of(from) / 16; chunk < (index_of(from) + bytes + 15) / 16; ++chunk)
    if (const UnfencedWrite& last = chunks[chunk];
        last.time > fenced && last.time > cluster->threads[last.thread].fenced)
      return static_cast<int>(last.thread);
  return -1;
}

void check_fenced(unsigned from, unsigned bytes, const char* what) {
  if (const int writer = unfenced_writer(from, bytes, current->fenced); writer >= 0)
    fail("%s reads shared address %u, of what thread %u wrote, without a fence.proxy.async", what, from,
         cluster->threads[static_cast<std::size_t>(writer)].thread.x);
  if (settings.watches)
    for_each_place(from, bytes,
                   [](const Place& place, unsigned there) { check_order(place, there, "a copy reads"); });
}

// ---- Who knows of whom ----

void warp_met(Warp& warp) {
  if (settings.watches) ++epoch_of(warp);
}

void know_each_other(const std::vector<Thread*>& came, const std::vector<Thread*>& wait) {
  if (!settings.watches) return;
  std::vector<unsigned> all(cluster->warps.size(), 0);
  const auto for_each_warp = [](const std::vector<Thread*>& threads, const auto& f) {
    std::bitset<kMostWarps> done;
    for (const Thread* thread : threads)
      if (const auto index = static_cast<std::size_t>(thread->warp->index); !done[index])
        done[index] = true, f(*thread->warp);
  };
  for_each_warp(came, [&](const Warp& warp) { learn(all, warp.seen); });
  for_each_warp(wait, [&](Warp& warp) { learn(warp.seen, all); });
  const Warp* last = nullptr;
  for (const Thread* thread : came)
    if (thread->warp != last) ++epoch_of(*thread->warp), last = thread->warp;
}

void tell_mbarrier(unsigned barrier) {
  if (!settings.watches) return;
  auto& known = told[barrier];
  known.resize(cluster->warps.size());
  learn(known, current->warp->seen);
  ++epoch_of(*current->warp);
}

void learn_from_mbarrier(const Thread& thread, unsigned barrier) {
  if (!settings.watches) return;
  if (const auto found = told.find(barrier); found != told.end()) learn(thread.warp->seen, found->second);
}

}  // namespace host_gpu
