// What is done to a sum before it is stored: its bias, the residual, then the activation, by PyTorch's
// formulas. NaN stays NaN in all of them.
#pragma once

#include "cuda/tile/element.cuh"
#include "cuda/tile/tf32.cuh"

namespace convtune {

// sigmoid(a) * v: -inf gives NaN as in PyTorch. Five instructions; expf and a division are fourteen, which
// took 30 us of a layer of 51 million outputs that takes 40 on an H200. Their error is a few units in the
// last place of a float and grows with -a, where the result vanishes.
__device__ __forceinline__ float times_sigmoid(float v, float a) {
  constexpr float kLog2OfE = 1.44269504f;
  return v * ptx::rcp_approx(1 + ptx::ex2_approx(-kLog2OfE * a));
}

template <ConvActivation kActivation>
__device__ __forceinline__ float activate(float v, float alpha, float beta) {
  if constexpr (kActivation == ConvActivation::relu) {
    return max_nan(v, 0);
  } else if constexpr (kActivation == ConvActivation::clip) {
    return min_nan(max_nan(v, alpha), beta);
  } else if constexpr (kActivation == ConvActivation::silu) {
    return times_sigmoid(v, v);
  } else if constexpr (kActivation == ConvActivation::gelu_erf) {
    return 0.5f * v * (1 + erff(v * 0.70710678f));
  } else if constexpr (kActivation == ConvActivation::gelu_tanh) {
    // 0.5 * (1 + tanh(u)) is sigmoid(2 * u), without tanh's branch.
    return times_sigmoid(v, 1.5957691f * (v + 0.044715f * v * v * v));
  } else if constexpr (kActivation == ConvActivation::hardswish) {
    return v * fminf(fmaxf(v + 3, 0), 6) * (1.0f / 6);
  } else if constexpr (kActivation == ConvActivation::leaky_relu) {
    return v > 0 ? v : v * alpha;
  } else if constexpr (kActivation == ConvActivation::sigmoid) {
    return times_sigmoid(1, v);
  } else {
    static_assert(kActivation == ConvActivation::none);
    return v;
  }
}

template <ConvExtents conv>
__device__ __forceinline__ float activate(float v) {
  return activate<conv.activation>(v, conv.alpha, conv.beta);
}
template <ConvExtents conv>
__device__ __forceinline__ float finish(float sum, float bias) {
  return activate<conv>(sum + bias);
}
// The same with a residual, 0 where the problem has none; eager problems round at each step.
template <ConvExtents conv>
__device__ __forceinline__ float finish(float sum, float bias, float residual) {
  if constexpr (!conv.eager) return activate<conv>(sum + bias + residual);
  constexpr ElementType kType = conv.y_type;
  float value = rounded<kType>(rounded<kType>(sum) + bias);
  if constexpr (conv.residual) value = rounded<kType>(value + residual);
  return activate<conv>(value);
}

}  // namespace convtune
