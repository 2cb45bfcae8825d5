// Written once with Highway and compiled for each instruction set, as cpu/tile/direct_kernels.cpp:
// docs/decisions/0004.
#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/winograd_filters/winograd_filters_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/register_tile-inl.h"
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
  clear(sums);
  constexpr std::int64_t kLine = 16;
  for (std::int64_t c = of.channels; c > 0; --c) {
    __builtin_prefetch(next_w, 0, 2);
    __builtin_prefetch(next_v, 0, 3);
    next_w += kLine, next_v += kLine;
    add_products<F32Products>(
        sums, [&](int l) HWY_ATTR { return hn::LoadU(f, w + l * kLanes); }, v);
    w += vectors * kLanes;
    v += of.pitch;
  }
  store_sums(sums, of.sums, of.sums_step);
}

struct FiltersTile {
  template <int tiles, int vectors>
  static constexpr WinogradFiltersMultiply kernel = multiply_filters<tiles, vectors>;
};
// The most tiles for each number of vectors, and fewer that leave less of a last block.
constexpr TileSize kManyFiltersTiles[] = {{6, 4}, {7, 3}, {8, 3}, {9, 3}, {10, 2}, {12, 2}, {13, 2}, {14, 2}};
constexpr TileSize kFewFiltersTiles[] = {{4, 3}, {5, 2}, {6, 2}};

// Unused where winograd_filters_kernels() has no width for the target.
[[maybe_unused]] constexpr WinogradFiltersKernels kFiltersKernels = {
    register_tiles<WinogradFiltersMultiply, FiltersTile, kFewFiltersTiles, kManyFiltersTiles>(), output};

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
  return kernels == nullptr ? nullptr : find_kernel(kernels->tiles, tiles, vectors);
}

}  // namespace convtune::cpu
#endif
