// The vector code of winograd_strip.h, written once with Highway and compiled for each instruction set as
// cpu/tile/direct_kernels.cpp: docs/decisions/0004.
#include <algorithm>
#include <array>

#include "cpu/tile/vectors.h"
#include "cpu/tile/winograd/winograd_strip.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/winograd/winograd_strip_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/shuffles-inl.h"
#include "cpu/tile/winograd/winograd_axis-inl.h"

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

// to[j * step][t] = float phases * t + j of the vectors of a row.
template <int phases>
HWY_INLINE void split_vectors(const SizedVector* row, SizedVector* to, int step) {
  if constexpr (phases == 1) {
    to[0] = row[0];
  } else {
    SizedVector even[phases / 2], odd[phases / 2];
    CONVTUNE_UNROLL
    for (int i = 0; i < phases / 2; ++i) {
      even[i] = every_second(row[2 * i], row[2 * i + 1], 0);
      odd[i] = every_second(row[2 * i], row[2 * i + 1], 1);
    }
    split_vectors<phases / 2>(even, to, 2 * step);
    split_vectors<phases / 2>(odd, to + step, 2 * step);
  }
}

// Lane t + tiles of a phase, of which those behind its last are float phases * u + phase of `behind`.
template <int phases, int phase, int tiles>
HWY_INLINE Vector phase_of_next(Vector of, const SizedVector* behind) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  static constexpr auto kFrom = [] {
    std::array<std::int32_t, kLanes> from{};
    for (int t = 0; t < kLanes; ++t)
      from[static_cast<std::size_t>(t)] =
          t + tiles < kLanes ? t + tiles : kLanes + (t + tiles - kLanes) * phases + phase;
    return from;
  }();
  static_assert((tiles - 1) * phases + phase < kLanes);
#if HWY_TARGET == HWY_AVX3
  return Vector{_mm512_permutex2var_ps(of.raw, _mm512_loadu_si512(kFrom.data()), behind[0].raw)};
#else
  // Each is permuted by itself, by the lower three bits of the same numbers, and both are blended. By way of
  // memory, as below, the load of a vector waits for the single floats that were stored before it.
  const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFrom.data()));
  constexpr int kOwn = (1 << (kLanes - tiles)) - 1;
  return Vector{_mm256_blend_ps(_mm256_permutevar8x32_ps(behind[0].raw, from),
                                _mm256_permutevar8x32_ps(of.raw, from), kOwn)};
#endif
#else
  constexpr int kBehind = ((tiles - 1) * phases + phase) / kLanes + 1;
  HWY_ALIGN float lanes[(1 + tiles) * kLanes] = {}, row[kBehind * kLanes];
  hn::Store(of, Floats(), lanes);
  for (int v = 0; v < kBehind; ++v) hn::Store(behind[v], Floats(), row + v * kLanes);
  for (int u = 0; u < tiles; ++u) lanes[kLanes + u] = row[u * phases + phase];
  return hn::LoadU(Floats(), lanes + tiles);
#endif
}

template <int taps>
HWY_INLINE void products_of_part(const SizedVector* d, SizedVector* v) {
  if constexpr (taps == 3) {
    Axis<2>::input(d, v);
  } else if constexpr (taps == 2) {
    v[0] = hn::Sub(d[0], d[1]), v[1] = d[1], v[2] = hn::Sub(d[1], d[2]);
  } else {
    v[0] = d[0], v[1] = d[1];
  }
}

// The parts of an axis from tap `first` on (winograd_parts()), as put(product, vector).
template <int taps, int stride, int first, int product, class Put>
HWY_INLINE void products_along(const SizedVector* columns, const Put& put) {
  constexpr int kTaps = std::min((taps - first - 1) / stride + 1, 3);
  SizedVector d[kTaps + 1], v[kTaps + 1];
  CONVTUNE_UNROLL
  for (int l = 0; l <= kTaps; ++l) d[l] = columns[first + l * stride];
  products_of_part<kTaps>(d, v);
  CONVTUNE_UNROLL
  for (int j = 0; j <= kTaps; ++j) put(product + j, v[j]);
  constexpr int kPhase = first % stride, kBeyond = first + 3 * stride;
  constexpr int kNext = kBeyond < taps ? kBeyond : kPhase + 1;
  if constexpr (kBeyond < taps || kNext < std::min(taps, stride))
    products_along<taps, stride, kNext, product + kTaps + 1>(columns, put);
}

constexpr int products_of(int taps, int stride) {
  int count = 0;
  for (int phase = 0; phase < std::min(taps, stride); ++phase)
    for (int first = phase; first < taps; first += 3 * stride)
      count += std::min((taps - first - 1) / stride + 1, 3) + 1;
  return count;
}

// Columns that lie tiles of a strip apart, of all columns of a tile that are beyond its own.
template <int phases, int columns, int column>
HWY_INLINE void columns_beyond(const SizedVector* behind, SizedVector* of) {
  if constexpr (column < columns) {
    of[column] = phase_of_next<phases, column % phases, column / phases>(of[column % phases], behind);
    columns_beyond<phases, columns, column + 1>(behind, of);
  }
}

template <int taps, int stride>
void input_strip_of(const WinogradStrip& shared) {
  constexpr int kPhases = 2 * stride, kColumns = taps + stride, kProducts = products_of(taps, stride);
  constexpr int kBehind = (std::max(kColumns - kPhases, 0) + kLanes - 1) / kLanes,
                kVectors = kPhases + kBehind;
  const WinogradStrip strip = shared;
  const Floats f;
  HWY_ALIGN static constexpr float kZeros[kVectors * kLanes] = {};
  SizedMask inside[kVectors];
  CONVTUNE_UNROLL
  for (int v = 0; v < kVectors; ++v)
    inside[v] = lanes_between(strip.from_col - v * kLanes, strip.end_col - v * kLanes);
  const bool few = kMaskedStores && strip.pieces.size() <= 2, two = strip.pieces.size() == 2;
  SizedMask meant[2];
  for (std::size_t piece = 0; piece < 2; ++piece) {
    const auto& of = strip.pieces[std::min(piece, strip.pieces.size() - 1)];
    meant[piece] = lanes_between(of.skip, of.end);
  }
  const WinogradStrip::Piece front = strip.pieces.front(), back = strip.pieces.back();
  const bool whole = !kMaskedStores && strip.pieces.size() == 1 && front.skip == 0 && front.end >= kLanes;
  // Some channels, whose rows stay in the first cache, a product down the rows after the other.
  constexpr std::int64_t kChannels = 8;
  for (std::int64_t first = 0; first < strip.channels; first += kChannels) {
    const std::int64_t* place = strip.places;
    for (const WinogradDown& down : strip.down) {
      const auto in_image = [&](std::int64_t row) { return row >= strip.from_row && row < strip.end_row; };
      const auto row_of = [&](std::int64_t row) {
        return in_image(row) ? strip.x + first * strip.plane + row * strip.row_step : kZeros;
      };
      // Less zero where a row is alone: that leaves every number as it is.
      const bool alone = down.how == WinogradDown::alone;
      const float *a = row_of(down.a), *b = alone ? kZeros : row_of(down.b);
      const std::int64_t a_step = in_image(down.a) ? strip.plane : 0,
                         b_step = !alone && in_image(down.b) ? strip.plane : 0;
      const float* next = row_of(down.fetched) + kPhases * kLanes;
      const std::int64_t next_step = in_image(down.fetched) ? strip.plane : 0;
      const Vector sign = hn::Set(f, down.how == WinogradDown::added ? 0.0F : -0.0F);
      for (std::int64_t c = first; c < std::min(first + kChannels, strip.channels); ++c) {
        SizedVector row[kVectors], columns[std::max(kColumns, kPhases)];
        CONVTUNE_UNROLL
        for (int v = 0; v < kVectors; ++v)
          row[v] = hn::IfThenElseZero(
              inside[v], hn::Add(hn::LoadU(f, a + v * kLanes), hn::Xor(hn::LoadU(f, b + v * kLanes), sign)));
        split_vectors<kPhases>(row, columns, 1);
        columns_beyond<kPhases, kColumns, kPhases>(row + kPhases, columns);
        products_along<taps, stride, 0, 0>(columns, [&](int product, Vector v) HWY_ATTR {
          const std::int64_t at = place[product] + c;
          if (whole) {
            hn::StoreU(v, f, front.to + at * front.step);
          } else if (few) {
            hn::BlendedStore(v, meant[0], f, front.to + at * front.step);
            if (two) hn::BlendedStore(v, meant[1], f, back.to + at * back.step);
          } else {
            for (const auto& piece : strip.pieces)
              store_lanes(v, piece.to + at * piece.step, piece.skip, piece.end);
          }
        });
        for (int v = 0; v < kPhases; ++v) __builtin_prefetch(next + v * kLanes, 0, 3);
        a += a_step, b += b_step, next += next_step;
      }
      place += kProducts;
    }
  }
}

// Filters of inner layers, and of first layers.
[[maybe_unused]] constexpr WinogradStripKernels kStripKernels = {{{3, 1, input_strip_of<3, 1>},
                                                                  {3, 2, input_strip_of<3, 2>},
                                                                  {6, 2, input_strip_of<6, 2>},
                                                                  {7, 2, input_strip_of<7, 2>},
                                                                  {11, 4, input_strip_of<11, 4>}}};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

WinogradStripKernel winograd_strip_kernel(int vector_bits, std::int64_t taps, std::int64_t stride) {
  const auto* const kernels = CONVTUNE_KERNELS_OF_WIDTH(WinogradStripKernels, vector_bits, kStripKernels);
  if (kernels == nullptr) return nullptr;
  for (const auto& one : *kernels)
    if (one.taps == taps && one.stride == stride) return one.kernel;
  return nullptr;
}

}  // namespace convtune::cpu
#endif
