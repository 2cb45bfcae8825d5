// Register tiles of Winograd's convolution along one axis: written once with Highway and compiled for each
// instruction set, as winograd_kernels.cpp is.
#include "cpu/algorithms/winograd_rows/winograd_rows_kernels.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/winograd_rows/winograd_rows_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/outputs-inl.h"
#include "cpu/tile/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

template <int channels, int vectors>
using RowsTile = SizedVector[channels][vectors];

// The next `count` taps.
template <int channels, int vectors>
HWY_INLINE void add_taps(const float* window, const std::int32_t*& taps, std::int64_t count,
                         const float*& weights, RowsTile<channels, vectors>& sums) {
  const Floats f;
  const auto add = [&](std::int32_t tap) HWY_ATTR {
    add_products<F32Products>(
        sums, [&](int v) HWY_ATTR { return hn::LoadU(f, window + tap + v * kLanes); }, weights);
    weights += channels;
  };
  // Three columns of a colour image: no loop is left every 54 cycles. With 16 registers GCC keeps sums in
  // memory then: the loop is 1.13 times as fast (a Zen 3, 6x2).
  constexpr int kOften = 9;
  if (kRegisters == 32 && count == kOften) {
    CONVTUNE_UNROLL
    for (int t = 0; t < kOften; ++t) add(taps[t]);
    taps += kOften;
    return;
  }
  for (const std::int32_t* const end = taps + count; taps != end; ++taps) add(*taps);
}

template <bool staggered, int channels, int vectors>
HWY_INLINE void finish_row(RowsTile<channels, vectors>& sums, const WinogradRowsArgs& args, int row) {
  if (args.y != nullptr) {
    const CutLines::Row& line = args.lines[static_cast<std::size_t>(row)];
    const TilePlace<float> place{args.y + row * args.y_row,
                                 args.y_stride,
                                 args.y_channels,
                                 args.skip,
                                 args.count,
                                 args.stream,
                                 line.begun,
                                 line.cut};
    finish_tile(sums, args.epilogue, place, args.residual ? args.residual + row * args.y_row : nullptr);
    if constexpr (staggered) {
      Stagger stagger = args.stagger;
      stagger.ring += row * stagger_floats(channels, vectors, kLanes);
      store_staggered(sums, place, stagger);
    } else {
      store_tile<channels, vectors, float>(sums, place);
    }
    return;
  }
  store_sums(sums, args.sums + row * channels * vectors * kLanes, vectors * kLanes);
}

// No more than two register tiles of sums at a time: m1 - m2 waits in the first cache for m3.
template <int channels, int vectors, bool staggered>
void rows_tile(const WinogradRowsArgs& shared) {
  const WinogradRowsArgs args = shared;
  const Floats f;
  const std::int32_t* taps = args.taps;
  const float* weights = args.weights;
  HWY_ALIGN float differences[channels * vectors * kLanes];
  RowsTile<channels, vectors> both, sums;
  fill(both, [&](int i, int) HWY_ATTR { return hn::Set(f, args.bias[i]); });
  add_taps<channels, vectors>(args.window, taps, args.counts[0], weights, both);
  clear(sums);
  add_taps<channels, vectors>(args.window, taps, args.counts[1], weights, sums);
  CONVTUNE_UNROLL
  for (int i = 0; i < channels; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      hn::Store(hn::Sub(both[i][v], sums[i][v]), f, differences + (i * vectors + v) * kLanes);
      both[i][v] = hn::Add(both[i][v], sums[i][v]);
    }
  }
  clear(sums);
  add_taps<channels, vectors>(args.window, taps, args.counts[2], weights, sums);
  fill(sums, [&](int i, int v) HWY_ATTR { return hn::Add(both[i][v], sums[i][v]); });
  finish_row<staggered>(sums, args, 0);
  if (!args.second) return;
  clear(sums);
  add_taps<channels, vectors>(args.window, taps, args.counts[3], weights, sums);
  fill(sums, [&](int i, int v) HWY_ATTR {
    return hn::Add(hn::Load(f, differences + (i * vectors + v) * kLanes), sums[i][v]);
  });
  finish_row<staggered>(sums, args, 1);
}

// Compares as integers, whose order is that of the floats they are the bits of.
std::int32_t largest(const float* from, std::int64_t count, std::int32_t bits) {
  const hn::RebindToSigned<Floats> d;
  auto most = hn::Set(d, bits);
  const auto absolute = hn::Set(d, 0x7fffffff);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    most = hn::Max(most, hn::And(hn::BitCast(d, hn::LoadU(Floats(), from + i)), absolute));
  HWY_ALIGN std::int32_t lanes[kLanes] = {};
  hn::Store(most, d, lanes);
  for (const std::int32_t lane : lanes) bits = std::max(bits, lane);
  for (; i < count; ++i) {
    std::int32_t one;
    std::memcpy(&one, from + i, sizeof one);
    bits = std::max(bits, one & 0x7fffffff);
  }
  return bits;
}

struct RowsKernels {
  template <int channels, int vectors>
  static constexpr WinogradRowsKernel kernel = {rows_tile<channels, vectors, false>,
                                                rows_tile<channels, vectors, true>};
};
// Tiles for 16 registers. Two tiles of sums, a column of the window and a weight fit those of the first
// three; of the others one does and what waits lies in the first cache, but six sums alone wait for each
// other.
constexpr TileSize kFewRowsTiles[] = {{2, 3}, {3, 2}, {6, 1}, {3, 4}, {4, 3}, {6, 2}};
// Tiles for 32 registers: two tiles of sums.
constexpr TileSize kManyRowsTiles[] = {{2, 6}, {3, 4}, {4, 3}, {6, 2}, {12, 1}};
// Unused where winograd_rows_kernels() has no width for the target.
[[maybe_unused]] constexpr WinogradRowsKernels kRowsKernels = {
    register_tiles<WinogradRowsKernel, RowsKernels, kFewRowsTiles, kManyRowsTiles>(), largest};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const WinogradRowsKernels* winograd_rows_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(WinogradRowsKernels, vector_bits, kRowsKernels);
}

const WinogradRowsTile* find_winograd_rows_tile(int vector_bits, int channels, int vectors) {
  const WinogradRowsKernels* const kernels = winograd_rows_kernels(vector_bits);
  return kernels == nullptr ? nullptr : find_tile(kernels->tiles, channels, vectors);
}

}  // namespace convtune::cpu
#endif
