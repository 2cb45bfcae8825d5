// AMX's register tiles: sizes, arguments, and the table of kernels, whoever has the tiles.
#pragma once

#include <array>
#include <cstdint>

namespace convtune::cpu {

// A tile of A: 16 positions of 32 elements; of B: 16 words (two elements of one filter each) of 16 filters;
// of sums: 16 positions of 16 filters.
constexpr int kAmxPixels = 16, kAmxFilters = 16, kAmxElements = 32;
constexpr int kAmxSums = 4;  // tiles of sums that a register tile has, at most

// sums[i][f] = the sum over runs r, chunks and elements e of
//   x[i * position_bytes + runs[r] + chunk * chunk_bytes + e] * weights[r][chunk][e][f]
//   i in [0, 16 m), f in [0, 16 n) of the kernel's register tile of m x n tiles.
// A run is `chunks` times 32 elements and, where there is one, the tail that begin() was told of: nothing
// behind a run is multiplied. `meanwhile` is called after every chunk and tail, of which each call has as
// many: vectors copy and store while the tiles multiply, as far ahead as the processor sees.
struct AmxArgs {
  const char* x;
  std::int64_t position_bytes, chunk_bytes;
  const std::int64_t* runs;  // in bytes
  std::int64_t run_count, chunks, tail;
  const char* weights;  // [run][chunk or tail][n][word][16 filters][2]
  float* sums;          // [16 m][16 n]
  void (*meanwhile)(void* context);
  void* context;
};
using AmxKernel = void (*)(const AmxArgs&);

struct AmxKernels {
  // Before the first and after the last call of a thread; `tail` elements, an even number below 32.
  void (*begin)(int tail);
  void (*end)();
  // [m - 1][n - 1], null where there would be too many sums: of runs without and with tails.
  std::array<std::array<AmxKernel, kAmxSums>, kAmxSums> multiply, multiply_tails;
};

}  // namespace convtune::cpu
