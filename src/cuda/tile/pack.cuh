// The kernel that packs weights (tile/packed.h), a thread a word, or 16 bytes of halves. A config says
// packed(), and source_of(i): which number stands at word i of the prepared ones, an index into all weights
// and behind them the biases, or -1 for a zero. Where it has weights(), numbers that say so, they are
// constants here: a third of what a packing kernel takes to compile went into functions that call each other.
#pragma once

#include "cuda/tile/constants.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/packed.h"
#include "cuda/tile/tf32.cuh"

namespace convtune {

inline constexpr int kPackThreads = 256;

// Word i of those behind the prepared ones.
template <ElementType kType, ElementType kBiasType>
__device__ __forceinline__ void copy_word(const Packed& at, const void* __restrict__ w,
                                          const void* __restrict__ bias, unsigned* __restrict__ packed,
                                          long long i) {
  if (i < at.bias_at())
    packed[i] = __float_as_uint(load_element<kType>(w, i - at.prepared));
  else
    packed[i] = bias && i < at.bias_at() + at.biases
                    ? __float_as_uint(load_element<kBiasType>(bias, i - at.bias_at()))
                    : 0;
}

// `prepare(i)` makes word i of those that are prepared.
template <ElementType kType = ElementType::f32, ElementType kBiasType = ElementType::f32, class Prepare>
__device__ __forceinline__ void pack_words(const Packed& at, const void* __restrict__ w,
                                           const void* __restrict__ bias, unsigned* __restrict__ packed,
                                           const Prepare& prepare) {
  const long long i = blockIdx.x * static_cast<long long>(kPackThreads) + threadIdx.x;
  if (i >= at.flag_at()) return;
  if (i < at.prepared)
    packed[i] = prepare(i);
  else
    copy_word<kType, kBiasType>(at, w, bias, packed, i);
}

// How units of 8 halves are dealt to threads: those beside each other have `count` units that are `stride`
// apart. Weights of a tap are as far apart as there are taps, and a kernel reads them tap by tap: threads of
// one tap would each have sectors of their own, which those of all taps share.
struct Deal {
  long long stride = 1, count = 1;

  constexpr long long unit_of(long long i, long long units) const {
    const long long all = stride * count, first = i / all * all;
    return first + all > units ? i : first + (i - first) % count * stride + (i - first) / count;
  }
};
template <auto config>
__device__ constexpr Deal deal() {
  constexpr long long kStep = 16, kMost = 1 << 14, kUnits = config.packed().prepared / 4;
  constexpr auto kSources = sources<config>();
  if constexpr (config.packed().unit == 1) return {};  // few weights, which the caches keep
  const long long first = kSources.source_of(0), apart = kSources.source_of(1) - first;
  if (first < 0 || apart <= 1) return {};
  const auto lies_between = [&](long long unit) {
    const long long source = unit < kUnits ? kSources.source_of(8 * unit) : -1;
    return source >= 0 && source < first + apart && source > first - apart;
  };
  for (long long stride = kStep; stride <= kMost && stride < kUnits; stride += kStep) {
    long long count = 1;
    while (lies_between(stride * count)) ++count;
    if (count > 1) return {stride, count};
  }
  return {};
}

// How far apart the weights of a unit are, where all units are whole ones or zeros: else 0.
template <auto config>
__device__ constexpr int apart() {
  if constexpr (requires { config.weights().apart(); })
    return config.weights().apart();
  else
    return 0;
}

// Weights of half precision, two a word, the one of the lower index in its lower half: source_of() speaks of
// halves. A thread packs 16 bytes, or a word of few. What stands behind them is widened to floats.
template <auto config>
__device__ __forceinline__ void pack_halves(const void* __restrict__ w, const void* __restrict__ bias,
                                            unsigned* __restrict__ packed) {
  constexpr Packed kAt = config.packed();
  constexpr ElementType kType = config.conv.x_type;
  constexpr int kHalves = 2 * kAt.unit;  // halves of a unit
  constexpr long long kUnits = kAt.prepared / kAt.unit;
  static_assert((kAt.unit == 4 || kAt.unit == 1) && kAt.prepared % kAt.unit == 0);
  const long long thread = blockIdx.x * static_cast<long long>(kPackThreads) + threadIdx.x;
  if (thread >= kAt.threads()) return;
  if (thread >= kUnits) {
    copy_word<kType, config.conv.bias_type>(kAt, w, bias, packed, thread - kUnits + kAt.prepared);
    return;
  }
  constexpr auto kSources = sources<config>();
  constexpr Deal kDeal = deal<config>();
  using Index = typename IndexThat<(kAt.prepared < 1LL << 31)>::Fits;
  const auto unit = static_cast<Index>(kDeal.unit_of(static_cast<Index>(thread), kUnits));
  unsigned halves[kHalves] = {}, words[kAt.unit];  // all are loaded before one is looked at
  const auto* const from = static_cast<const unsigned short*>(w);
  constexpr int kApart = apart<config>();
  if constexpr (kApart > 0) {
    static_assert(kHalves == 8);
    const long long first = kSources.source_of(8LL * unit);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (first >= 0) halves[i] = from[first + i * kApart];
  } else {
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      const long long source = kSources.source_of(static_cast<long long>(kHalves * unit | i));
      if (source >= 0) halves[i] = from[source];
    }
  }
  bool finite = true;
#pragma unroll
  for (int i = 0; i < kHalves; ++i) {
    if (kAt.flagged) finite &= is_finite(__float_as_uint(low_half<kType>(halves[i])));
    words[i / 2] = i % 2 == 0 ? halves[i] : words[i / 2] | halves[i] << 16;
  }
  if constexpr (kAt.unit == 4)
    reinterpret_cast<uint4*>(packed)[unit] = {words[0], words[1], words[2], words[3]};
  else
    packed[unit] = words[0];
  if (!finite) packed[kAt.flag_at()] = 1;
}

// Words that are one number each, whatever the weights' type. `round(weight)`: the bits of a weight as the
// kernel multiplies it. The flag must be 0 before.
template <auto config, class Round>
__device__ __forceinline__ void pack(const void* __restrict__ w, const void* __restrict__ bias,
                                     unsigned* __restrict__ packed, const Round& round) {
  constexpr Packed kAt = config.packed();
  constexpr ElementType kType = config.conv.x_type, kBiasType = config.conv.bias_type;
  pack_words<kType, kBiasType>(kAt, w, bias, packed, [&](long long i) -> unsigned {
    constexpr auto kSources = sources<config>();
    const long long source = kSources.source_of(i);
    if (source < 0) return 0;
    if (source >= kAt.weights)
      return bias ? __float_as_uint(load_element<kBiasType>(bias, source - kAt.weights)) : 0;
    const unsigned bits = round(load_element<kType>(w, source));
    if (!is_finite(bits)) packed[kAt.flag_at()] = 1;
    return bits;
  });
}

}  // namespace convtune
