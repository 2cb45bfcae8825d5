// A launch: block after block, or cluster after cluster, to its end or to the first fault.
#include <sys/mman.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "cluster.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

extern "C" {
unsigned char* host_gpu_window = nullptr;
unsigned host_gpu_end = 0;
bool host_gpu_watches = false;
}

namespace host_gpu {

const Launch* launched = nullptr;

namespace {

std::uint64_t random_state = 1;

void make_window() {
  if (host_gpu_window) return;
  void* const memory = mmap(nullptr, (kMostBlocks + 1) * kWindow, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  host_gpu_window = static_cast<unsigned char*>(memory);
  host_gpu_window += -reinterpret_cast<std::uintptr_t>(host_gpu_window) % kWindow;
}

void prepare_shared_memory(unsigned rank, unsigned bytes) {
  unsigned char* const window = host_gpu_window + rank * kWindow;
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(window, kWindow);
  __asan_unpoison_memory_region(window + kFirst, bytes);
#endif
  std::memset(window + kFirst, settings.begins_as_nan ? 0xff : kSpoilt, bytes);
}

Extent extent_of(const std::array<unsigned, 3>& a) {
  return {a[0], a[1], a[2]};
}
Extent place_in(const std::array<unsigned, 3>& extent, std::uint64_t index) {
  return {static_cast<unsigned>(index % extent[0]), static_cast<unsigned>(index / extent[0] % extent[1]),
          static_cast<unsigned>(index / extent[0] / extent[1])};
}

// The blocks from number `first` on.
void prepare_cluster(Cluster& here, const Launch& launch, std::uint64_t first) {
  const unsigned threads = launch.block[0] * launch.block[1] * launch.block[2], warps = (threads + 31) / 32;
  here.blocks.resize(launch.cluster);
  here.warps.resize(launch.cluster * warps);
  here.threads.resize(std::size_t{launch.cluster} * threads);
  here.live = launch.cluster * threads;
  for (unsigned rank = 0; rank < launch.cluster; ++rank) {
    here.blocks[rank].rank = rank, here.blocks[rank].live = threads;
    prepare_shared_memory(rank, host_gpu_end - kFirst);
    for (unsigned i = 0; i < threads; ++i) {
      Thread& thread = here.threads[rank * threads + i];
      Warp& warp = here.warps[rank * warps + i / 32];
      thread.thread = place_in(launch.block, i);
      thread.block = place_in(launch.grid, first + rank);
      thread.grid = extent_of(launch.grid), thread.block_extent = extent_of(launch.block);
      thread.dynamic_shared = host_gpu_window + rank * kWindow + kFirst;
      thread.of = &here.blocks[rank], thread.warp = &warp;
      thread.lane = static_cast<int>(i % 32), thread.number = static_cast<int>(rank * threads + i);
      if (thread.lane == 0) {
        warp.of = thread.of, warp.index = static_cast<int>(rank * warps + i / 32);
        warp.registers = launch.registers;
        warp.first_thread = thread.number;
      }
      warp.live |= 1u << thread.lane;
      prepare(thread.fiber, static_cast<std::size_t>(thread.number), run_thread);
      set_ready(&thread);
    }
  }
}

}  // namespace

unsigned random_below(unsigned count) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return static_cast<unsigned>((random_state >> 16) % count);
}

Settings settings_of(const std::string& text) {
  Settings all;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto number = [&] { return equals == word.npos ? 0 : std::stoull(word.substr(equals + 1)); };
    if (word == "eager")
      all.async = Async::eager;
    else if (word == "late")
      all.async = Async::late;
    else if (word == "shuffled")
      all.async = Async::any, all.order = Order::random;
    else if (word == "backwards")
      all.order = Order::backwards;
    else if (word == "watch")
      all.watches = true;
    else if (word == "nan")
      all.begins_as_nan = true;
    else if (name == "seed")
      all.seed = number();
    else if (name == "sms" && number() > 0)
      all.multiprocessors = static_cast<int>(number());
    else if (name == "capability" && number() > 0)
      all.capability = static_cast<int>(number());
    else
      throw std::invalid_argument(
          "CONVTUNE_HOST_GPU: " + word +
          " is none of eager, late, shuffled, backwards, watch, nan, seed=N, sms=N and capability=80 or 90");
  }
  return all;
}

std::string run(const Launch& launch, const Settings& how) {
  launched = &launch, settings = how;
  host_gpu_watches = how.watches;
  random_state = 0x9e3779b97f4a7c15ull ^ (how.seed * 0x2545f4914f6cdd1dull + 1);
  failure.clear();
  const std::size_t threads =
      std::size_t{launch.block[0]} * launch.block[1] * launch.block[2] * launch.cluster;
  if (launch.cluster > kMostBlocks || launch.grid[0] % launch.cluster != 0)
    return "the grid is no multiple of its clusters";
  make_window();
  make_stacks(threads);
  constexpr unsigned kFixed = 48 << 10;  // most that a kernel of fixed size has
  host_gpu_end = kFirst + (launch.shared_bytes ? launch.shared_bytes : kFixed);
  const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  for (std::uint64_t first = 0; first < blocks && failure.empty(); first += launch.cluster) {
    Cluster here;
    cluster = &here;
    prepare_cluster(here, launch, first);
    begin_watching();
    begin_threads();
  }
  cluster = nullptr;
  return failure;
}

}  // namespace host_gpu
