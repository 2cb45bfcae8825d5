// The register tiles of AMX, written once for whatever has its eight tiles: the processor
// (amx_kernels.cpp), or a test's model of it on processors without AMX.
//
//   Tiles::configure(tail), release()   what begin() and end() of AmxKernels do
//   Tiles::zero<t>(), load<t>(from, row_bytes), store<t>(to, row_bytes), multiply_add<sums, a, b>()
#pragma once

#include "cpu/algorithms/amx/amx_tiles.h"

namespace convtune::cpu {

// Tiles 0 to 3 are sums. A and B have two tiles each, of which tails, whose sizes differ, take one.
constexpr int kAmxA[2] = {4, 6}, kAmxB[2] = {5, 7};
constexpr int kAmxTailA = kAmxA[1], kAmxTailB = kAmxB[1];

// f.template operator()<0>() to <count - 1>.
template <int count, int first = 0, class F>
constexpr void unrolled(F&& f) {
  if constexpr (first < count) {
    f.template operator()<first>();
    unrolled<count, first + 1>(f);
  }
}

// One chunk of all positions and filters, or the tail. Where A and B have one tile each, every second row of
// a register tile goes through the filters backwards and begins with the tile of B that is there.
template <class Tiles, int m, int n, bool tails, bool tail>
void amx_add(const AmxArgs& args, const char* x, const char* weights) {
  constexpr std::int64_t kWordBytes = 2 * kAmxFilters * 2;
  const std::int64_t words = tail ? args.tail / 2 : kAmxElements / 2;
  unrolled<m>([&]<int i> {
    constexpr int a = kAmxA[tails ? tail : i % 2];
    Tiles::template load<a>(x + i * kAmxPixels * args.position_bytes, args.position_bytes);
    unrolled<n>([&]<int step> {
      constexpr int j = tails && i % 2 == 1 ? n - 1 - step : step;
      constexpr int b = kAmxB[tails ? tail : j % 2];
      constexpr bool there = i > 0 && (tails ? step == 0 : n <= 2);
      if constexpr (!there) Tiles::template load<b>(weights + j * words * kWordBytes, kWordBytes);
      Tiles::template multiply_add<i * n + j, a, b>();
    });
  });
}

template <class Tiles, int m, int n, bool tails>
void amx_multiply(const AmxArgs& args) {
  static_assert(m * n <= kAmxSums);
  constexpr std::int64_t kWordBytes = 2 * kAmxFilters * 2;
  constexpr std::int64_t kSumsBytes = n * kAmxFilters * static_cast<std::int64_t>(sizeof(float));
  unrolled<m * n>([&]<int t> { Tiles::template zero<t>(); });
  const char* weights = args.weights;
  for (std::int64_t run = 0; run < args.run_count; ++run) {
    const char* x = args.x + args.runs[run];
    for (std::int64_t chunk = 0; chunk < args.chunks; ++chunk, x += args.chunk_bytes) {
      amx_add<Tiles, m, n, tails, false>(args, x, weights);
      weights += n * kAmxElements / 2 * kWordBytes;
      args.meanwhile(args.context);
    }
    if constexpr (tails) {
      amx_add<Tiles, m, n, tails, true>(args, x, weights);
      weights += n * args.tail / 2 * kWordBytes;
      args.meanwhile(args.context);
    }
  }
  unrolled<m * n>([&]<int t> {
    Tiles::template store<t>(args.sums + (t / n * kAmxPixels * n + t % n) * kAmxFilters, kSumsBytes);
  });
}

template <class Tiles>
constexpr AmxKernels amx_kernels_of() {
  AmxKernels all{Tiles::configure, Tiles::release, {}, {}};
  unrolled<kAmxSums>([&]<int i> {
    unrolled<kAmxSums>([&]<int j> {
      if constexpr ((i + 1) * (j + 1) <= kAmxSums) {
        all.multiply[i][j] = amx_multiply<Tiles, i + 1, j + 1, false>;
        all.multiply_tails[i][j] = amx_multiply<Tiles, i + 1, j + 1, true>;
      }
    });
  });
  return all;
}

}  // namespace convtune::cpu
