// The ceilings of this CPU, measured: fused multiply-adds a second with the widest vectors it has,
// and bytes a second when copying memory. Many windows, short against the system's time slices, and
// no barrier between them: so a busy machine answers nearly what an idle one does.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/statistics.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/backend/multiply_add.h"
#include "cpu/base/parallel.h"
#include "cpu/base/processors.h"
#include "cpu/tile/instruction_sets.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace convtune::cpu {
namespace {

using std::int64_t;

double seconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// More threads than processors take turns, and do no more than the processors can.
double turns(int threads) {
  return std::min(1.0, static_cast<double>(usable_processors()) / threads);
}

// ---- Copying -----------------------------------------------------------------------------------

// Bytes that are copied between two looks at the clock.
constexpr int64_t kPiece = 1 << 20;

// In steps below the size from which the C library's memcpy takes to non-temporal stores by itself.
void copy_plain(unsigned char* to, const unsigned char* from) {
  constexpr int64_t kStep = 16 * 1024;
  for (int64_t i = 0; i < kPiece; i += kStep) std::memcpy(to + i, from + i, kStep);
}

// Stores that go round the caches: no line of the destination is read first.
void copy_non_temporal(unsigned char* to, const unsigned char* from) {
#if defined(__SSE2__)
  for (int64_t i = 0; i < kPiece; i += 64) {
    for (int64_t j = i; j < i + 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + j)));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, kPiece);
#endif
}

struct CopyBuffers {
  int64_t share;  // bytes of each thread, in both
  std::shared_ptr<void> from, to;
};

// Together eight times the last-level cache, of which a large machine has several, one for a group of cores;
// but no more than a quarter of the memory, and less where not so much of it is to be had.
CopyBuffers copy_buffers(int threads, Backend& on) {
  const DeviceInfo& info = on.info();
  int64_t most = kMostFlushedBytes / 2;
  if (info.memory_bytes > 0) most = std::min(most, info.memory_bytes / 8);
  const int64_t share = std::min(std::max(4 * info.l3_bytes / threads, int64_t{24} << 20), most / threads);
  for (int64_t pieces = std::max<int64_t>(share / kPiece, 1);; pieces /= 2) {
    const int64_t bytes = pieces * kPiece;
    try {
      auto from = on.allocate(bytes * threads);
      return {bytes, std::move(from), on.allocate(bytes * threads)};
    } catch (const Error&) {
      if (pieces == 1) throw;
    }
  }
}

}  // namespace

// All threads work at once, and each keeps the time of its own best window: a thread that the system
// set aside for a moment does not spoil the windows of the others.
double measure_flops_per_second(int threads) {
  constexpr double kSeconds = 0.15;
  constexpr int64_t kRounds = 20'000;  // rounds of 4 cycles or more: a window is a fraction of a time slice
  const MultiplyAddKernel& kernel = multiply_add_kernel(widest_vector_bits(backend().info()));
  struct alignas(64) Measured {
    double best = 1e300;
    float result = 0;  // kept, so that the work is
  };
  std::vector<Measured> measured(threads);
  parallel_for(threads, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (double total = 0; total < kSeconds;) {
        const double window = seconds([&] { measured[i].result += kernel.run(kRounds); });
        measured[i].best = std::min(measured[i].best, window);
        total += window;
      }
    }
  });
  double windows_per_second = 0;
  for (const Measured& one : measured) windows_per_second += 1 / one.best;
  return static_cast<double>(kernel.flops * kRounds) * windows_per_second * turns(threads);
}

// All threads copy at once, each round and round its own share of the buffers, and the speed of each
// is its median window: memory is shared, so a best window would be one in which the others paused.
double measure_bytes_per_second(int threads, Backend& on) {
  constexpr double kSeconds = 0.12;
  constexpr std::size_t kMaxWindows = 10'000;
  const CopyBuffers buffers = copy_buffers(threads, on);
  const int64_t share = buffers.share, pieces = share / kPiece;
  auto* from = static_cast<unsigned char*>(buffers.from.get());
  auto* to = static_cast<unsigned char*>(buffers.to.get());
  std::vector<std::vector<double>> windows(threads);
  for (auto& own : windows) own.reserve(kMaxWindows);

  double best = 0;
  for (const auto copy : {copy_plain, copy_non_temporal}) {
    parallel_for(threads, threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        windows[i].clear();
        double total = 0;
        // The first time round touches the pages, so that they lie in the memory next to the thread.
        for (int64_t piece = 0; total < kSeconds && windows[i].size() < kMaxWindows; ++piece) {
          const int64_t at = i * share + piece % pieces * kPiece;
          if (piece < pieces) std::memset(from + at, 1, kPiece);
          const double window = seconds([&] { copy(to + at, from + at); });
          if (piece < pieces) continue;
          windows[i].push_back(window);
          total += window;
        }
      }
    });
    double bytes_per_second = 0;
    for (const auto& own : windows) bytes_per_second += 2.0 * kPiece / median(own);
    best = std::max(best, bytes_per_second);
  }
  return best * turns(threads);
}

}  // namespace convtune::cpu
