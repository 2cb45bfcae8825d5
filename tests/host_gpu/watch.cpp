// Questions to every access of shared memory where a launch watches: whether a copy is under way to what it
// reads, whether a barrier stands behind whoever wrote it, and whether the asynchronous proxy has been told
// of what it reads.
//
// Who is ordered behind whom is known by warp: each counts its own epochs, and barriers tell others how far
// it has come (vector clocks). Lanes of a warp are ordered by the instructions at which they meet. Accesses
// by plain C++ are not seen.
#include <algorithm>

#include "cluster.h"

namespace host_gpu {
namespace {

struct Write {
  unsigned epoch = 0;                                         // of its warp; 0: by a copy, or never
  unsigned short warp = 0, lane : 15 = 0, under_way : 1 = 0;  // a copy to there
};
struct UnfencedWrite {
  unsigned time = 0, thread = 0;  // 0: by a copy, or never
};

std::vector<Write> words;                        // of 4 bytes
std::vector<UnfencedWrite> chunks;               // of 16
std::map<unsigned, std::vector<unsigned>> told;  // to mbarriers
unsigned now = 0;

void learn(std::vector<unsigned>& seen, const std::vector<unsigned>& more) {
  for (std::size_t i = 0; i < more.size(); ++i) seen[i] = std::max(seen[i], more[i]);
}
unsigned& epoch_of(Warp& warp) {
  return warp.seen[static_cast<std::size_t>(warp.index)];
}

bool is_ordered(const Write& write) {
  const Warp& mine = *current->warp;
  if (write.epoch == 0) return true;
  if (write.warp == mine.index) return write.lane == current->lane || mine.seen[write.warp] > write.epoch;
  return mine.seen[write.warp] >= write.epoch;
}
void check_order(const Write& write, unsigned address) {
  if (is_ordered(write)) return;
  const Warp& other = cluster->warps[write.warp];
  const Thread& writer = cluster->threads[static_cast<std::size_t>(other.first_thread + write.lane)];
  fail("it reads shared address %u, which thread %u of block %u wrote, and no barrier stands between",
       address, writer.thread.x, other.of->rank);
}

}  // namespace

void begin_watching() {
  if (!settings.watches) return;
  words.assign(cluster->blocks.size() * kWindow / 4, {});
  chunks.assign(cluster->blocks.size() * kWindow / 16, {});
  told.clear();
  now = 0;
  for (Warp& warp : cluster->warps) {
    warp.seen.assign(cluster->warps.size(), 0);
    epoch_of(warp) = 1;
  }
}

void will_read(unsigned address, unsigned bytes) {
  may_switch();
  for (unsigned word = address / 4; word < (address + bytes + 3) / 4; ++word) {
    check_order(words[word], 4 * word);
    if (words[word].under_way) fail("it reads shared address %u, which a copy is under way to", 4 * word);
  }
}

// Two writers of a word are no fault by themselves: kernels have rows for what nobody reads.
void was_written(unsigned address, unsigned bytes) {
  const Warp& warp = *current->warp;
  const Write write{warp.seen[static_cast<std::size_t>(warp.index)], static_cast<unsigned short>(warp.index),
                    static_cast<unsigned short>(current->lane), 0};
  if (bytes >= 4)  // two threads may write halves of a word
    for (unsigned word = address / 4; word < (address + bytes) / 4; ++word) words[word] = write;
  ++now;
  for (unsigned chunk = address / 16; chunk < (address + bytes + 15) / 16; ++chunk)
    chunks[chunk] = {now, static_cast<unsigned>(current->number)};
  may_switch();
}

void copy_begins(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  for (unsigned word = to / 4; word < (to + bytes + 3) / 4; ++word) words[word].under_way = 1;
}
void copy_ends(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  for (unsigned word = to / 4; word < (to + bytes + 3) / 4; ++word) words[word].under_way = 0;
}
void written_by_copy(unsigned to, unsigned bytes) {
  if (!settings.watches) return;
  std::fill(words.begin() + to / 4, words.begin() + (to + bytes + 3) / 4, Write{});
  std::fill(chunks.begin() + to / 16, chunks.begin() + (to + bytes + 15) / 16, UnfencedWrite{});
}

// ---- Fences: by who wrote it, or by who issues the copy ----

void fence_proxy_async() {
  current->fenced = ++now;
}

int unfenced_writer(unsigned from, unsigned bytes, unsigned fenced) {
  if (!settings.watches) return -1;
  for (unsigned chunk = from / 16; chunk < (from + bytes + 15) / 16; ++chunk)
    if (const UnfencedWrite& last = chunks[chunk];
        last.time > fenced && last.time > cluster->threads[last.thread].fenced)
      return static_cast<int>(last.thread);
  return -1;
}

void check_fenced(unsigned from, unsigned bytes, const char* what) {
  if (const int writer = unfenced_writer(from, bytes, current->fenced); writer >= 0)
    fail("%s reads shared address %u, of what thread %u wrote, without a fence.proxy.async", what, from,
         cluster->threads[static_cast<std::size_t>(writer)].thread.x);
}

// ---- Who knows of whom ----

void warp_met(Warp& warp) {
  if (settings.watches) ++epoch_of(warp);
}

void know_each_other(const std::vector<Thread*>& threads) {
  if (!settings.watches) return;
  std::vector<unsigned> all(cluster->warps.size(), 0);
  for (const Thread* thread : threads) learn(all, thread->warp->seen);
  for (const Thread* thread : threads) learn(thread->warp->seen, all);
  const Warp* last = nullptr;
  for (const Thread* thread : threads)
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
