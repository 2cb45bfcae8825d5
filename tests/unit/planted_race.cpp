// Two bodies of one loop write the same variable. ThreadSanitizer must say so: this is the proof that
// the marks in src/cpu/base/parallel.cpp hide nothing. Built and run by the tsan preset alone.
#include <cstdint>
#include <cstdio>

#include "cpu/base/parallel.h"

int main() {
  int shared = 0;
  for (int round = 0; round < 100; ++round)
    convtune::cpu::parallel_for(2, 2, [&](int thread, std::int64_t, std::int64_t) { shared += thread + 1; });
  std::printf("%d\n", shared);
}
