// The register tiles of AMX, written once for whatever has its eight tiles: the processor
// (amx_kernels.cpp), or a test's model of it on processors without AMX.
//
//   Tiles::configure(tail), release()   what begin() and end() of AmxKernels do
//   Tiles::zero<t>(), load<t>(from, row_bytes), store<t>(to, row_bytes), multiply_add<sums, a, b>()
#pragma once

#include "cpu/amx/amx_tiles.h"

namespace convtune::cpu {

// Tiles 0 to 3 are sums. A and B have one tile each, and one more for tails, whose sizes differ: the
// processor renames them, so that a tile is loaded while its last value is multiplied.
constexpr int kAmxA = 4, kAmxB = 5, kAmxTailA = 6, kAmxTailB = 7;

// f.template operator()<0>() to <count - 1>.
template <int count, int first = 0, class F>
constexpr void unrolled(F&& f) {
  if constexpr (first < count) {
    f.template operator()<first>();
    unrolled<count, first + 1>(f);
  }
}

template <class Tiles, int m, int n>
void amx_multiply(const AmxArgs& args) {
  static_assert(m * n <= kAmxSums);
  constexpr std::int64_t kWordBytes = 2 * kAmxFilters * 2;
  unrolled<m * n>([]<int t> { Tiles::template zero<t>(); });
  const char* weights = args.weights;
  // One chunk of all positions and filters. Every second row of a register tile goes through the filters
  // backwards and begins with the tile of B that is there.
  const auto add = [&]<int a, int b>(const char* x, std::int64_t words) {
    unrolled<m>([&]<int i> {
      Tiles::template load<a>(x + i * kAmxPixels * args.position_bytes, args.position_bytes);
      unrolled<n>([&]<int step> {
        constexpr int j = i % 2 == 0 ? step : n - 1 - step;
        if constexpr (i == 0 || step > 0)
          Tiles::template load<b>(weights + j * words * kWordBytes, kWordBytes);
        Tiles::template multiply_add<i * n + j, a, b>();
      });
    });
    weights += n * words * kWordBytes;
  };
  for (std::int64_t run = 0; run < args.run_count; ++run) {
    const char* x = args.x + args.runs[run];
    for (std::int64_t chunk = 0; chunk < args.chunks; ++chunk, x += kAmxElements * 2)
      add.template operator()<kAmxA, kAmxB>(x, kAmxElements / 2);
    if (args.tail > 0) add.template operator()<kAmxTailA, kAmxTailB>(x, args.tail / 2);
  }
  unrolled<m>([&]<int i> {
    unrolled<n>([&]<int j> {
      Tiles::template store<i * n + j>(args.sums + (i * kAmxPixels * n + j) * kAmxFilters,
                                       n * kAmxFilters * static_cast<std::int64_t>(sizeof(float)));
    });
  });
}

template <class Tiles>
constexpr AmxKernels amx_kernels_of() {
  AmxKernels all{Tiles::configure, Tiles::release, {}};
  unrolled<kAmxSums>([&]<int i> {
    unrolled<kAmxSums>([&]<int j> {
      if constexpr ((i + 1) * (j + 1) <= kAmxSums) all.multiply[i][j] = amx_multiply<Tiles, i + 1, j + 1>;
    });
  });
  return all;
}

}  // namespace convtune::cpu
