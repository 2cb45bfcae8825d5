// How depthwise_weight_gradient_sm80.cuh loads: a thread's channels of a pixel, as they come and widened.
#pragma once

#include "cuda/algorithms/depthwise_weight_gradient_sm80/config.h"
#include "cuda/ptx/global.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::depthwise_weight_gradient_sm80 {

template <bool kFloats>
struct Stored {
  using Type = unsigned short;
};
template <>
struct Stored<true> {
  using Type = float;
};
template <DepthwiseWeightGradientSm80 config>
using Element = typename Stored<config.conv.x_type == ElementType::f32>::Type;

template <DepthwiseWeightGradientSm80 config>
using Words = unsigned[config.load_words()];

// kElements behind `from`; zeros where it is not wanted.
template <DepthwiseWeightGradientSm80 config, long long kElements = 0>
__device__ __forceinline__ void load(Words<config>& to, const Element<config>* __restrict__ from,
                                     unsigned wanted) {
  constexpr long long kBytes = kElements * config.size();
  if constexpr (config.aligned && config.load_bytes() == 16)
    ptx::ld_global_v4_if<kBytes>(to, from, wanted);
  else if constexpr (config.aligned && config.load_bytes() == 8)
    ptx::ld_global_v2_if<kBytes>(to, from, wanted);
  else if constexpr (config.aligned && config.load_bytes() == 4)
    ptx::ld_global_if<kBytes>(to[0], from, wanted);
  else
    for_constants<0, config.width>([&](auto i) {
      constexpr int kByte = i.value * config.size();
      unsigned number;
      if constexpr (config.size() == 4)
        ptx::ld_global_if<kBytes + kByte>(number, from, wanted);
      else
        ptx::ld_global_u16_if<kBytes + kByte>(number, from, wanted);
      to[kByte / 4] = kByte % 4 == 0 ? number : to[kByte / 4] | number << 16;
    });
}

template <DepthwiseWeightGradientSm80 config>
__device__ __forceinline__ void widen(float (&to)[config.width], const Words<config>& words) {
  constexpr ElementType kType = config.conv.x_type;
#pragma unroll
  for (int i = 0; i < config.width; ++i)
    if constexpr (kType == ElementType::f32)
      to[i] = __uint_as_float(words[i]);
    else
      to[i] = i % 2 == 0 ? low_half<kType>(words[i / 2]) : high_half<kType>(words[i / 2]);
}

}  // namespace convtune::depthwise_weight_gradient_sm80
