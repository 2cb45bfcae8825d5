// Two bodies of one loop write the same variable. ThreadSanitizer must say so: this is the proof that the
// handing over of loops in src/cpu/base/thread_pool.cpp orders nothing but their beginning and their end.
// Built and run by the tsan preset alone.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "cpu/base/parallel.h"

int main() {
  int shared = 0;
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> arrived = 0;
    convtune::cpu::parallel_for(2, 2, [&](std::int64_t begin, std::int64_t) {
      arrived.fetch_add(1, std::memory_order_relaxed);
      while (arrived.load(std::memory_order_relaxed) < 2) std::this_thread::yield();  // on two threads
      shared += static_cast<int>(begin) + 1;
    });
  }
  std::printf("%d\n", shared);
}
