// Written once with Highway and compiled for each instruction set, as cpu/tile/direct_kernels.cpp:
// docs/decisions/0004.
#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/winograd_filters/winograd_filters_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/winograd/winograd_axis-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

bool output(const float* from, std::int64_t stride, std::int64_t tiles, std::int64_t vectors, float* to,
            std::int64_t row_step) {
  const Floats f;
  Vector nothing = hn::Zero(f);  // 0 as long as all are finite: 0 * infinity is NaN
  const std::int64_t filters = vectors * kLanes;
  for (std::int64_t tile = 0; tile < tiles; ++tile, to += filters)
    for (std::int64_t k = 0; k < filters; k += kLanes, from += kLanes) {
      SizedVector columns[2][4];
      CONVTUNE_UNROLL
      for (int j = 0; j < 4; ++j) {
        SizedVector v[4], y[2];
        CONVTUNE_UNROLL
        for (int i = 0; i < 4; ++i) v[i] = hn::Load(f, from + (4 * i + j) * stride);
        Axis<2>::output(v, y);
        columns[0][j] = y[0], columns[1][j] = y[1];
      }
      CONVTUNE_UNROLL
      for (int r = 0; r < 2; ++r) {
        SizedVector y[2];
        Axis<2>::output(columns[r], y);
        nothing = hn::MulAdd(y[0], hn::Zero(f), hn::MulAdd(y[1], hn::Zero(f), nothing));
        hn::Store(y[0], f, to + r * row_step + tile * filters + k);
        hn::Store(y[1], f, to + r * row_step + (tile + 1) * filters + k);
      }
    }
  return hn::AllTrue(f, hn::Eq(nothing, nothing));
}

template <int tiles, int vectors>
void multiply_filters(const WinogradFiltersProduct& shared) {
  const WinogradFiltersProduct of = shared;  // a copy, so that stores of sums cannot be taken to change it
  const Floats f;
  const float *w = of.w, *v = of.v, *next_w = of.next_w, *next_v = of.next_v;
  SizedVector sums[tiles][vectors];
  CONVTUNE_UNROLL
  for (int i = 0; i < tiles; ++i) {
    CONVTUNE_UNROLL
    for (int l = 0; l < vectors; ++l) sums[i][l] = hn::Zero(f);
  }
  constexpr std::int64_t kLine = 16;
  for (std::int64_t c = of.channels; c > 0; --c) {
    __builtin_prefetch(next_w, 0, 2);
    __builtin_prefetch(next_v, 0, 3);
    next_w += kLine, next_v += kLine;
    SizedVector weights[vectors];
    CONVTUNE_UNROLL
    for (int l = 0; l < vectors; ++l) weights[l] = hn::LoadU(f, w + l * kLanes);
    CONVTUNE_UNROLL
    for (int i = 0; i < tiles; ++i) {
      const Vector value = hn::Set(f, v[i]);
      CONVTUNE_UNROLL
      for (int l = 0; l < vectors; ++l) sums[i][l] = hn::MulAdd(weights[l], value, sums[i][l]);
    }
    w += vectors * kLanes;
    v += of.pitch;
  }
  CONVTUNE_UNROLL
  for (int i = 0; i < tiles; ++i) {
    CONVTUNE_UNROLL
    for (int l = 0; l < vectors; ++l) hn::Store(sums[i][l], f, of.sums + i * of.sums_step + l * kLanes);
  }
}

template <int tiles, int... fewer>
constexpr WinogradFiltersTile filters_tile(std::integer_sequence<int, fewer...>) {
  return {tiles, sizeof...(fewer), {multiply_filters<tiles, fewer + 1>...}};
}
template <int tiles, int vectors>
constexpr WinogradFiltersTile kFiltersTile = filters_tile<tiles>(std::make_integer_sequence<int, vectors>());
// Sums, a vector of weights a column and one of a tile must fit the registers.
constexpr std::array kManyFiltersTiles = {kFiltersTile<6, 4>,  kFiltersTile<7, 3>,  kFiltersTile<8, 3>,
                                          kFiltersTile<9, 3>,  kFiltersTile<10, 2>, kFiltersTile<12, 2>,
                                          kFiltersTile<13, 2>, kFiltersTile<14, 2>};
constexpr std::array kFewFiltersTiles = {kFiltersTile<4, 3>, kFiltersTile<5, 2>, kFiltersTile<6, 2>};
constexpr std::span<const WinogradFiltersTile> filters_tiles() {
  if constexpr (kRegisters == 32)
    return kManyFiltersTiles;
  else
    return kFewFiltersTiles;
}

// Unused where winograd_filters_kernels() has no width for the target.
[[maybe_unused]] constexpr WinogradFiltersKernels kFiltersKernels = {filters_tiles(), output};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const WinogradFiltersKernels* winograd_filters_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(WinogradFiltersKernels, vector_bits, kFiltersKernels);
}

WinogradFiltersMultiply winograd_filters_multiply(int vector_bits, std::int64_t tiles, std::int64_t vectors) {
  const WinogradFiltersKernels* const kernels = winograd_filters_kernels(vector_bits);
  if (kernels == nullptr) return nullptr;
  for (const WinogradFiltersTile& tile : kernels->tiles)
    if (tile.tiles == tiles && vectors <= tile.vectors)
      return tile.multiply[static_cast<std::size_t>(vectors - 1)];
  return nullptr;
}

}  // namespace convtune::cpu
#endif
