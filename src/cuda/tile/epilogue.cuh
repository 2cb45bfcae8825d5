// Applies the epilogue to a sum before it is stored: its bias, the residual, then the activation, by
// PyTorch's formulas. NaN stays NaN in all of them.
#pragma once

#include "cuda/tile/element.cuh"
#include "cuda/tile/tf32.cuh"

namespace convtune {

// v / (1 + 2^power): sigmoid(a) * v of a power of -a * log2(e). -inf gives NaN as in PyTorch. Five
// instructions with silu_power(); expf and a division are fourteen, which took 30 us of a layer of 51 million
// outputs that takes 40 on an H200. Their error is a few units in the last place of a float and grows with
// the power, where the result vanishes.
__device__ __forceinline__ float times_sigmoid(float v, float power) {
  return v * ptx::rcp_approx(1 + ptx::ex2_approx(power));
}
// Two sigmoids with three special functions, of which an SM computes 16 a clock, not four: with
// denominators d and e, 1 / d is e / (d * e). That must stay finite, so powers end at 2^63, and sigmoids up
// to 2^-62 are 0, by the saturation of a multiply-add that is there anyway. A NaN in a power makes a
// sigmoid of 0 and leaves the other alone, so `v` must hold that NaN, too.
__device__ __forceinline__ void times_sigmoids(float (&v)[2], const float (&powers)[2]) {
  const float first = 1 + ptx::ex2_approx(fminf(powers[0], 63));
  const float second = 1 + ptx::ex2_approx(fminf(powers[1], 63));
  const float both = ptx::rcp_approx(first * second);
  v[0] *= __saturatef(fmaf(both, second, -0x1p-62f));
  v[1] *= __saturatef(fmaf(both, first, -0x1p-62f));
}

__device__ __forceinline__ float silu_power(float v) {
  return -1.44269504f * v;
}
// GELU's 0.5 * (1 + tanh(u)) is sigmoid(2 * u), without tanh's branch. u is v * (v * v + 1 / 0.044715) times
// a constant: in this order each instruction has one constant, which takes no register.
__device__ __forceinline__ float gelu_power(float v) {
  return -0.102943240f * (v * (v * v + 22.3638600f));
}

// GELU by erf for outputs in half precision: max(v, 0) less |v| times the tail of the normal distribution,
// which is a power of 2 whose exponent is nearly a parabola. Polynomials of |v| fitted to it here: for fp16
// to 5e-6 of outputs down to -6e-5, and to 3e-10 below, up to 5.9, beyond which it has none; for bf16 to 7e-5
// up to 5.8 and to 3e-4 up to 12.9, behind which the power is subnormal, and zero. By erff it is 1 at 5.5,
// where 1 - erf is a unit in the last place of 1, and takes more registers than there are. One special
// function, of which an SM computes 16 a clock: by exp(-v * v / 2) times a rational function there were two.
// -inf gives NaN as in PyTorch: the maximum is (|v| + v) / 2.
template <ElementType kType>
__device__ __forceinline__ float gelu_by_tail(float v) {
  const float a = fminf(fabsf(v), kType == ElementType::f16 ? 5.9f : 14);
  float exponent;
  if constexpr (kType == ElementType::f16) {
    exponent = fmaf(a, 3.23954191e-5f, -7.47804297e-4f);
    exponent = fmaf(exponent, a, 7.93938618e-3f);
    exponent = fmaf(exponent, a, -5.30456081e-2f);
    exponent = fmaf(exponent, a, -0.459176481f);
    exponent = fmaf(exponent, a, -1.15103447f);
    exponent = fmaf(exponent, a, -1.00000775f);
  } else {
    exponent = fmaf(a, 3.41926416e-8f, -2.08101096e-6f);
    exponent = fmaf(exponent, a, 5.45685944e-5f);
    exponent = fmaf(exponent, a, -8.16135143e-4f);
    exponent = fmaf(exponent, a, 7.82769173e-3f);
    exponent = fmaf(exponent, a, -5.20402752e-2f);
    exponent = fmaf(exponent, a, -0.460971206f);
    exponent = fmaf(exponent, a, -1.15003121f);
    exponent = fmaf(exponent, a, -1.00009513f);
  }
  return fmaf(-a, ptx::ex2_approx(exponent), fmaf(fabsf(v), 0.5f, 0.5f * v));
}

template <ConvActivation kActivation>
__device__ __forceinline__ float activate(float v, float alpha, float beta) {
  if constexpr (kActivation == ConvActivation::relu) {
    return ptx::max_nan(v, 0);
  } else if constexpr (kActivation == ConvActivation::clip) {
    return ptx::min_nan(ptx::max_nan(v, alpha), beta);
  } else if constexpr (kActivation == ConvActivation::silu) {
    return times_sigmoid(v, silu_power(v));
  } else if constexpr (kActivation == ConvActivation::gelu_erf) {
    return 0.5f * v * (1 + erff(v * 0.70710678f));
  } else if constexpr (kActivation == ConvActivation::gelu_tanh) {
    return times_sigmoid(v, gelu_power(v));
  } else if constexpr (kActivation == ConvActivation::hardswish) {
    return v * fminf(fmaxf(v + 3, 0), 6) * (1.0f / 6);
  } else if constexpr (kActivation == ConvActivation::leaky_relu) {
    return v > 0 ? v : v * alpha;
  } else if constexpr (kActivation == ConvActivation::sigmoid) {
    return times_sigmoid(1, silu_power(v));
  } else {
    static_assert(kActivation == ConvActivation::none);
    return v;
  }
}

// Activates as PyTorch does on a GPU, in its order and by the same functions of CUDA's: eager problems
// promise its bits. A SiLU is 18 instructions, with a true division, whose rare cases are a call.
template <ConvActivation kActivation>
__device__ __forceinline__ float activate_eagerly(float v, float alpha, float beta) {
  if constexpr (kActivation == ConvActivation::silu) {
    return v / (1 + expf(-v));
  } else if constexpr (kActivation == ConvActivation::gelu_tanh) {
    return 0.5f * v * (1 + tanhf(0.797884561f * fmaf(0.044715f, v * v * v, v)));
  } else if constexpr (kActivation == ConvActivation::sigmoid) {
    return 1 / (1 + expf(-v));
  } else {
    return activate<kActivation>(v, alpha, beta);
  }
}

template <ConvExtents conv>
__device__ __forceinline__ float activate(float v) {
  if constexpr (conv.eager) return activate_eagerly<conv.activation>(v, conv.alpha, conv.beta);
  if constexpr (conv.activation == ConvActivation::gelu_erf && conv.y_type != ElementType::f32)
    return gelu_by_tail<conv.y_type>(v);
  return activate<conv.activation>(v, conv.alpha, conv.beta);
}
template <ConvExtents conv>
__device__ __forceinline__ float finish(float sum, float bias) {
  return activate<conv>(sum + bias);
}

// Gives the starting value of a kernel's sums. Those of an eager problem are rounded before the bias: they
// begin at zero always.
enum class SumsBegin { at_zero, at_bias };

// With a residual, 0 where the problem has none; eager problems round at each step.
template <ConvExtents conv, SumsBegin kBegin = SumsBegin::at_zero>
__device__ __forceinline__ float add(float sum, float bias, float residual) {
  if constexpr (!conv.eager) {
    const float value = kBegin == SumsBegin::at_bias ? sum : sum + bias;
    return conv.residual ? value + residual : value;
  }
  constexpr ElementType kType = conv.y_type;
  const float value = rounded<kType>(rounded<kType>(sum) + bias);
  return conv.residual ? rounded<kType>(value + residual) : value;
}
template <ConvExtents conv, SumsBegin kBegin = SumsBegin::at_zero>
__device__ __forceinline__ float finish(float sum, float bias, float residual) {
  return activate<conv>(add<conv, kBegin>(sum, bias, residual));
}

// Two outputs of half precision as a word.
template <ConvExtents conv>
__device__ __forceinline__ unsigned activate_halves(float (&values)[2]) {
  if constexpr (!conv.eager && conv.activation == ConvActivation::silu) {
    times_sigmoids(values, {silu_power(values[0]), silu_power(values[1])});
  } else if constexpr (!conv.eager && conv.activation == ConvActivation::gelu_tanh) {
    times_sigmoids(values, {gelu_power(values[0]), gelu_power(values[1])});
  } else {
    for (float& value : values) value = activate<conv>(value);
  }
  return pack_halves<conv.y_type>(values[0], values[1]);
}
template <ConvExtents conv, SumsBegin kBegin = SumsBegin::at_zero>
__device__ __forceinline__ unsigned finish_halves(float first, float first_bias, float second,
                                                  float second_bias, unsigned residual = 0) {
  float values[2] = {add<conv, kBegin>(first, first_bias, low_half<conv.y_type>(residual)),
                     add<conv, kBegin>(second, second_bias, high_half<conv.y_type>(residual))};
  return activate_halves<conv>(values);
}

}  // namespace convtune
