// The vector code of the direct convolution, written once with Highway and compiled by
// foreach_target.h for SSE4, AVX2 and AVX-512 (or NEON). Highway's own dispatcher is not used, so
// only its headers are needed: docs/decisions/0004.
#include "cpu/tile/direct_kernels.h"

#include <algorithm>
#include <cstring>

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/direct_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/joined_rows-inl.h"
#include "cpu/tile/outputs-inl.h"
#include "cpu/tile/register_tile-inl.h"
#include "cpu/tile/shuffles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

#if CONVTUNE_BF16_PAIRS
// The lower halves of words, 0 in the upper ones: an infinity there would make NaN of a weight that is 0.
HWY_INLINE Vector load_lower(const float* x) {
  return {_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0x55555555, x))};
}
#else
Vector load_lower(const float* x);
#endif

// `cuts`: the kernel knows the lines that rows begin and end within. For the compiler those are as many
// instructions as all else here, and beside them, in one kernel, all else takes 1 to 2 % longer.
template <class Products, class T, bool cuts, int channels, int vectors>
void tile(const TileArgs& shared) {
  const TileArgs args = shared;  // a copy, so that stores to acc cannot be taken to change it
  const Floats d;
  SizedVector acc[channels][vectors];
  // Sums that are finished here begin with the bias.
  fill(acc, [&](int i, int) HWY_ATTR { return args.y != nullptr ? hn::Set(d, args.bias[i]) : hn::Zero(d); });
  const float* weights = args.weights;
  const float* const window = args.window;
  const auto add = [&](std::int32_t tap, auto read) HWY_ATTR {
    add_products<Products>(
        acc, [&](int v) HWY_ATTR { return read(window + tap + v * kLanes); }, weights);
    weights += channels;
  };
  const auto whole = [](const float* x) HWY_ATTR { return hn::LoadU(Floats(), x); };
  const std::int32_t* tap = args.taps;
  const std::int32_t* const end = tap + args.tap_count;
  // A 3x3 filter of a channel at a time: 2 % of a first layer.
  constexpr int kOften = 9;
  if (sizeof(T) == 4 && args.tap_count % kOften == 0)
    for (; tap != end; tap += kOften) {
      CONVTUNE_UNROLL
      for (int t = 0; t < kOften; ++t) add(tap[t], whole);
    }
  for (const std::int32_t* const halves = end - args.halves; tap != halves; ++tap) add(*tap, whole);
  if constexpr (sizeof(T) == 2)
    for (; tap != end; ++tap) add(*tap, [](const float* x) HWY_ATTR { return load_lower(x); });
  if (!args.y) return store_sums(acc, args.acc, args.acc_stride);
  TilePlace<T> place{
      static_cast<T*>(args.y), args.y_stride, args.y_channels, args.skip, args.count, args.stream};
  finish_tile(acc, args.epilogue, place, args.residual);
  if constexpr (cuts) {
    place.begun = args.line.begun, place.cut = args.line.cut;
    if (args.turn != 0)
      return store_turned(acc, place.y, place.y_step, place.rows, args.turn, place.begun, place.cut);
  }
  store_tile(acc, place);
}

template <class T>
void finish(const float* acc, float bias, const Epilogue& epilogue, const Outputs<T>& to,
            std::int64_t count) {
  const Floats d;
  const Vector b = hn::Set(d, bias);
  finish_run([&](std::int64_t i) HWY_ATTR { return hn::Add(hn::LoadU(d, acc + i), b); }, epilogue, to, count);
}

void fence() {
  hwy::FlushStream();
}

// One vector of each of the first phases.
template <int stride>
HWY_INLINE void split(const float* from, std::int64_t phases, float* to, std::int64_t to_step) {
  const Floats d;
  if constexpr (stride == 1) {
    hn::StoreU(hn::LoadU(d, from), d, to);
  } else if constexpr (stride == 2) {
    const Vector a = hn::LoadU(d, from), b = hn::LoadU(d, from + kLanes);
    hn::StoreU(every_second(a, b, 0), d, to);
    if (phases > 1) hn::StoreU(every_second(a, b, 1), d, to + to_step);
  } else {
    const Vector a = hn::LoadU(d, from), b = hn::LoadU(d, from + kLanes);
    const Vector c = hn::LoadU(d, from + 2 * kLanes), e = hn::LoadU(d, from + 3 * kLanes);
    const Vector even = every_second(a, b, 0), next_even = every_second(c, e, 0);
    const Vector odd = every_second(a, b, 1), next_odd = every_second(c, e, 1);
    hn::StoreU(every_second(even, next_even, 0), d, to);
    if (phases > 1) hn::StoreU(every_second(odd, next_odd, 0), d, to + to_step);
    if (phases > 2) hn::StoreU(every_second(even, next_even, 1), d, to + 2 * to_step);
    if (phases > 3) hn::StoreU(every_second(odd, next_odd, 1), d, to + 3 * to_step);
  }
}

// The last part of a vector comes with the end of what is before it.
template <int stride>
HWY_INLINE void split_row(const float* from, std::int64_t phases, std::int64_t count, float* to,
                          std::int64_t to_step) {
  for (std::int64_t i = 0; i + kLanes <= count; i += kLanes)
    split<stride>(from + i * stride, phases, to + i, to_step);
  if (count % kLanes != 0)
    split<stride>(from + (count - kLanes) * stride, phases, to + count - kLanes, to_step);
}

// Splits into 8 or 16 phases in two passes, first by four, a few vectors at a time.
template <int stride>
HWY_INLINE void split_twice(const float* from, std::int64_t count, float* to, std::int64_t to_step) {
  constexpr int kRest = stride / 4;
  HWY_ALIGN float fours[4 * kRest * kLanes];
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t units = std::min<std::int64_t>(count, kLanes), at = std::min(i, count - units);
    split_row<4>(from + at * stride, 4, units * kRest, fours, kRest * kLanes);
    for (std::int64_t j = 0; j < 4; ++j) {
      const float* const four = fours + j * kRest * kLanes;
      SizedVector phases[4];
      if constexpr (kRest == 2) {
        Vector a, b;
        hn::LoadInterleaved2(Floats(), four, a, b);
        phases[0] = a, phases[1] = b;
      } else {
        Vector a, b, c, e;
        hn::LoadInterleaved4(Floats(), four, a, b, c, e);
        phases[0] = a, phases[1] = b, phases[2] = c, phases[3] = e;
      }
      for (std::int64_t l = 0; l < kRest; ++l)
        store_lanes(phases[l], to + (j + 4 * l) * to_step + at, 0, units);
    }
  }
}

#if HWY_TARGET == HWY_AVX3
// One vector of each of 8 phases: the phases of four units each out of two vectors, as blocks of four, which
// are then transposed.
HWY_INLINE void split_eight(const float* from, float* to, std::int64_t to_step) {
  const __m512i lower = _mm512_set_epi32(27, 19, 11, 3, 26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0);
  const __m512i upper = _mm512_add_epi32(lower, _mm512_set1_epi32(4));
  __m512 fours[2][4];
  CONVTUNE_UNROLL
  for (int k = 0; k < 4; ++k) {
    const __m512 a = _mm512_loadu_ps(from + 2 * k * kLanes), b = _mm512_loadu_ps(from + (2 * k + 1) * kLanes);
    fours[0][k] = _mm512_permutex2var_ps(a, lower, b), fours[1][k] = _mm512_permutex2var_ps(a, upper, b);
  }
  CONVTUNE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const __m512* const four = fours[half];
    const __m512 a = _mm512_shuffle_f32x4(four[0], four[1], 0x44),
                 b = _mm512_shuffle_f32x4(four[0], four[1], 0xee);
    const __m512 c = _mm512_shuffle_f32x4(four[2], four[3], 0x44),
                 d = _mm512_shuffle_f32x4(four[2], four[3], 0xee);
    float* const first = to + 4 * half * to_step;
    _mm512_storeu_ps(first, _mm512_shuffle_f32x4(a, c, 0x88));
    _mm512_storeu_ps(first + to_step, _mm512_shuffle_f32x4(a, c, 0xdd));
    _mm512_storeu_ps(first + 2 * to_step, _mm512_shuffle_f32x4(b, d, 0x88));
    _mm512_storeu_ps(first + 3 * to_step, _mm512_shuffle_f32x4(b, d, 0xdd));
  }
}
#endif

void split_phases(const float* from, std::int64_t stride, std::int64_t phases, std::int64_t count, float* to,
                  std::int64_t to_step) {
  const bool whole = count >= kLanes;
#if HWY_TARGET == HWY_AVX3
  if (whole && stride == 8 && phases == 8) {
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const std::int64_t at = std::min<std::int64_t>(i, count - kLanes);
      split_eight(from + at * stride, to + at, to_step);
    }
    return;
  }
#endif
  if (whole && stride == 1)
    split_row<1>(from, phases, count, to, to_step);
  else if (whole && stride == 2)
    split_row<2>(from, phases, count, to, to_step);
  else if (whole && stride == 4)
    split_row<4>(from, phases, count, to, to_step);
  else if (phases == 8 && stride == 8 && count * 2 >= kLanes)
    split_twice<8>(from, count, to, to_step);
  else if (phases == 16 && stride == 16 && count * 4 >= kLanes)
    split_twice<16>(from, count, to, to_step);
  else
    for (std::int64_t j = 0; j < phases; ++j)
      for (std::int64_t i = 0; i < count; ++i) to[j * to_step + i] = from[i * stride + j];
}

void slide(const float* from, std::int64_t copies, std::int64_t step, std::int64_t count, float* to,
           std::int64_t to_step) {
  const Floats d;
  for (std::int64_t j = 0; j < copies; ++j, from += step, to += to_step) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    if (i < count) store_lanes(hn::LoadU(d, from + i), to + i, 0, count - i);
  }
}

void join(const Bf16* lower, const Bf16* upper, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const BitVector words = hn::Or(load_halves(lower + i), hn::ShiftLeft<16>(load_halves(upper + i)));
    hn::StoreU(hn::BitCast(Floats(), words), Floats(), to + i);
  }
  for (; i < count; ++i) {
    const std::uint32_t word = lower[i] | std::uint32_t{upper[i]} << 16;
    std::memcpy(to + i, &word, sizeof word);
  }
}

template <class Products, class T, bool cuts>
struct DirectTile {
  template <int channels, int vectors>
  static constexpr TileKernel kernel = tile<Products, T, cuts, channels, vectors>;
};
constexpr TileSize kFewTiles[] = {{1, 8}, {2, 4}, {2, 6}, {3, 4}, {4, 3}, {6, 2}, {12, 1}};
constexpr TileSize kManyTiles[] = {{1, 8}, {2, 4}, {4, 3}, {6, 2}, {12, 1}, {2, 8},  {3, 7},
                                   {4, 6}, {5, 5}, {6, 4}, {8, 3}, {12, 2}, {16, 1}, {24, 1}};
template <class Products, class T, bool cuts = false>
constexpr RegisterTiles<TileKernel> kTiles =
    register_tiles<TileKernel, DirectTile<Products, T, cuts>, kFewTiles, kManyTiles>();
constexpr RegisterTiles<TileKernel> cutting_tiles() {
  if constexpr (kVectorsAreLines<float>)
    return kTiles<F32Products, float, true>;
  else
    return {};
}

// Unused where direct_kernels() has no width for the target.
[[maybe_unused]] constexpr DirectKernels kKernels = {kLanes,
                                                     kTiles<F32Products, float>,
#if CONVTUNE_BF16_PAIRS
                                                     kTiles<Bf16Products, InstructionBf16>,
#else
                                                     {},
#endif
                                                     cutting_tiles(),
                                                     finish<float>,
                                                     finish<Bf16>,
                                                     fence,
                                                     split_phases,
                                                     slide,
                                                     join};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

RegisterTiles<TileKernel> direct_tiles(const DirectKernels& kernels, const ConvProblem& problem) {
  return problem.dtype.x == DType::bf16 ? kernels.bf16_tiles : kernels.tiles;
}

const DirectKernels* direct_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(DirectKernels, vector_bits, kKernels);
}

}  // namespace convtune::cpu
#endif
