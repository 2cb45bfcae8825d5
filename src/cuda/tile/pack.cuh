// The kernel that packs weights (tile/packed.h), a thread a word. A config says packed(), and source_of(i):
// which number stands at word i of the prepared ones, an index into all weights and behind them the biases,
// or -1 for a zero. Where it has weights(), numbers that say so, they are constants here: a third of what a
// packing kernel takes to compile went into functions that call each other.
#pragma once

#include "cuda/tile/element.cuh"
#include "cuda/tile/packed.h"
#include "cuda/tile/tf32.cuh"

namespace convtune {

inline constexpr int kPackThreads = 256;

// A function, since nvcc knows no constant of a class outside of functions on a device.
template <auto config>
__device__ constexpr auto sources() {
  if constexpr (requires { config.weights(); })
    return config.weights();
  else
    return config;
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
  else if (i < at.bias_at())
    packed[i] = __float_as_uint(load_element<kType>(w, i - at.prepared));
  else
    packed[i] = bias && i < at.bias_at() + at.biases
                    ? __float_as_uint(load_element<kBiasType>(bias, i - at.bias_at()))
                    : 0;
}

// Weights of half precision, two a word, the one of the lower index in its lower half: source_of() speaks of
// halves. What stands behind them is widened to floats.
template <auto config>
__device__ __forceinline__ void pack_halves(const void* __restrict__ w, const void* __restrict__ bias,
                                            unsigned* __restrict__ packed) {
  constexpr Packed kAt = config.packed();
  constexpr ElementType kType = config.conv.x_type;
  pack_words<kType, config.conv.bias_type>(kAt, w, bias, packed, [&](long long i) -> unsigned {
    constexpr auto kSources = sources<config>();
    unsigned word = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long source = kSources.source_of(2 * i + half);
      if (source < 0) continue;
      const unsigned bits = static_cast<const unsigned short*>(w)[source];
      if (kAt.flagged && !is_finite(__float_as_uint(low_half<kType>(bits)))) packed[kAt.flag_at()] = 1;
      word |= bits << (16 * half);
    }
    return word;
  });
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
