// Written once with Highway and compiled for each instruction set, as cpu/direct/direct_kernels.cpp:
// docs/decisions/0004.
#include "cpu/winograd/winograd_filters_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/winograd/winograd_filters_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/shuffles-inl.h"
#include "cpu/winograd/winograd_axis-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Lanes [from, end) of a vector.
HWY_INLINE Mask lanes_between(std::int64_t from, std::int64_t end) {
  const auto first = [](std::int64_t lanes) HWY_ATTR {
    return hn::FirstN(Floats(), static_cast<std::size_t>(std::clamp<std::int64_t>(lanes, 0, kLanes)));
  };
  return hn::AndNot(first(from), first(end));
}

// Columns of `phases` phases and the first one's next: d[j][t] is column phases * t + j of row(v), the vector
// that begins at column v * kLanes, or behind the last of those at column v * kLanes + phases.
template <int phases, class Row>
HWY_INLINE void split_columns(const Row& row, SizedVector* d) {
  if constexpr (phases == 2) {
    const Vector a = row(0), b = row(1), next_a = row(2), next_b = row(3);
    d[0] = every_second(a, b, 0), d[1] = every_second(a, b, 1);
    d[2] = every_second(next_a, next_b, 0), d[3] = every_second(next_a, next_b, 1);
  } else {
    const Vector a = row(0), b = row(1), c = row(2), e = row(3);
    const Vector even = every_second(a, b, 0), even_behind = every_second(c, e, 0);
    const Vector odd = every_second(a, b, 1), odd_behind = every_second(c, e, 1);
    d[0] = every_second(even, even_behind, 0), d[2] = every_second(even, even_behind, 1);
    d[1] = every_second(odd, odd_behind, 0), d[3] = every_second(odd, odd_behind, 1);
    d[4] = every_second(every_second(row(4), row(5), 0), every_second(row(6), row(7), 0), 0);
  }
}

template <int stride>
void input(const WinogradStrip& shared) {
  constexpr int kInputs = 3 + stride, kPhases = 2 * stride;
  const WinogradStrip strip = shared;
  const Floats f;
  HWY_ALIGN static constexpr float kZeros[kPhases * kLanes + kPhases] = {};
  SizedMask inside[kInputs];
  CONVTUNE_UNROLL
  for (int j = 0; j < kInputs; ++j)
    inside[j] = lanes_between((strip.from_col - j + kPhases - 1) / kPhases,
                              (strip.end_col - j + kPhases - 1) / kPhases);
  const float* rows[kInputs];
  std::int64_t steps[kInputs];
  for (int i = 0; i < kInputs; ++i) {
    const bool in_image = i >= strip.from_row && i < strip.end_row;
    rows[i] = in_image ? strip.x + i * strip.row_step : kZeros;
    steps[i] = in_image ? strip.plane : 0;
  }
  SizedMask meant[2];
  const bool few = kMaskedStores && strip.pieces.size() <= 2;
  float* to[2];
  for (std::size_t piece = 0; piece < 2; ++piece) {
    const auto& of = strip.pieces[std::min(piece, strip.pieces.size() - 1)];
    meant[piece] = lanes_between(of.skip, of.end), to[piece] = of.to;
  }
  const bool two = strip.pieces.size() == 2;
  for (std::int64_t c = 0; c < strip.channels; ++c) {
    const auto load = [&](int i, int v) HWY_ATTR {
      return hn::LoadU(f, rows[i] + (v < kPhases ? v * kLanes : (v - kPhases) * kLanes + kPhases));
    };
    const auto along = [&](int i, const auto& row) HWY_ATTR {
      SizedVector d[kInputs], v[kInputs];
      split_columns<kPhases>(row, d);
      CONVTUNE_UNROLL
      for (int j = 0; j < kInputs; ++j) d[j] = hn::IfThenElseZero(inside[j], d[j]);
      if constexpr (stride == 1) {
        Axis<2>::input(d, v);
      } else {
        v[0] = hn::Sub(d[0], d[2]), v[1] = d[2], v[2] = hn::Sub(d[2], d[4]);
        v[3] = d[1], v[4] = d[3];
      }
      CONVTUNE_UNROLL
      for (int j = 0; j < kInputs; ++j) {
        const std::int64_t place = strip.places[i * kInputs + j] + c * strip.pitch;
        if (few) {
          hn::BlendedStore(v[j], meant[0], f, to[0] + place);
          if (two) hn::BlendedStore(v[j], meant[1], f, to[1] + place);
        } else {
          for (const auto& piece : strip.pieces) store_lanes(v[j], piece.to + place, piece.skip, piece.end);
        }
      }
    };
    const auto row = [&](int i) { return [&, i](int v) HWY_ATTR { return load(i, v); }; };
    const auto less = [&](int i, int k) {
      return [&, i, k](int v) HWY_ATTR { return hn::Sub(load(i, v), load(k, v)); };
    };
    if constexpr (stride == 1) {
      along(0, less(0, 2));
      along(1, [&](int v) HWY_ATTR { return hn::Add(load(1, v), load(2, v)); });
      along(2, less(2, 1));
      along(3, less(1, 3));
    } else {
      along(0, less(0, 2));
      along(1, row(2));
      along(2, less(2, 4));
      along(3, row(1));
      along(4, row(3));
    }
    for (int i = 0; i < kInputs; ++i) rows[i] += steps[i];
  }
}

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
[[maybe_unused]] constexpr WinogradFiltersKernels kFiltersKernels = {
    filters_tiles(), {input<1>, input<2>}, output};

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
