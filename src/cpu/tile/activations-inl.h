// The activations of a problem, on vectors of floats; in single precision they agree with
// problem/epilogue.h's. Included once for each target, as vectors-inl.h is, behind <hwy/foreach_target.h>.
#if defined(CONVTUNE_ACTIVATIONS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_ACTIVATIONS_INL
#undef CONVTUNE_ACTIVATIONS_INL
#else
#define CONVTUNE_ACTIVATIONS_INL
#endif

#include "convtune/problem.h"
#include "cpu/tile/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// exp(-v - n ln 2) for n = -v / ln 2 rounded, which is in the last bits of `sum`. The remainder is at most
// ln(2) / 2, where a polynomial is fitted that is within 2^-23.6.
HWY_INLINE Vector exp_of_remainder(Vector v, Vector& sum, Vector& n) {
  const Floats d;
  const Vector magic = hn::Set(d, 0x1.8p23F);
  sum = hn::NegMulAdd(v, hn::Set(d, 1.44269504F), magic), n = hn::Sub(sum, magic);
  // Products of n and the first 9 bits of ln 2 are exact; the others are added apart.
  Vector r = hn::NegMulSub(n, hn::Set(d, 0.693359375F), v);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4F), r);
  Vector e = hn::Set(d, 0.008297619F);
  for (const float coefficient : {0.04191563F, 0.16667576F, 0.4999889F, 0.9999997F, 1.0000001F})
    e = hn::MulAdd(e, r, hn::Set(d, coefficient));
  return e;
}

// exp(-v) of v >= 0, within 2^-22 of itself, and 0 above 87; a NaN in v does not show. Half as long as
// hn::Exp, which takes every number and is within 2^-22.5.
HWY_INLINE Vector exp_of_minus(Vector v) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  Vector sum, n;
  const Vector e = exp_of_remainder(v, sum, n);
  const auto scaled = hn::Add(hn::BitCast(du, e), hn::ShiftLeft<23>(hn::BitCast(du, sum)));
  return hn::IfThenElseZero(hn::Le(v, hn::Set(d, 87.0F)), hn::BitCast(d, scaled));
}

// 1 / (1 + exp(-v)); a NaN in v does not show.
HWY_INLINE Vector sigmoid(Vector v) {
  const Floats d;
  const Vector one = hn::Set(d, 1.0F), e = exp_of_minus(hn::Abs(v));
  return hn::Div(hn::IfThenElse(hn::Lt(v, hn::Zero(d)), e, one), hn::Add(one, e));
}

// v / (1 + exp(-u)), with v's NaN.
HWY_INLINE Vector times_sigmoid(Vector v, Vector u) {
#if HWY_TARGET == HWY_AVX3
  // AVX-512 multiplies by a power of 2 that may leave the range: exp(-u) of every u takes less than the two
  // cases of exp(-|u|).
  const Floats d;
  const Vector most = hn::Set(d, 104.0F), within = hn::Min(hn::Max(u, hn::Set(d, -104.0F)), most);
  Vector sum, n;
  const Vector e = exp_of_remainder(within, sum, n);
  return hn::Div(v, hn::Add(hn::Set(d, 1.0F), Vector{_mm512_scalef_ps(e.raw, n.raw)}));
#else
  return hn::Mul(v, sigmoid(u));
#endif
}

// erfc(z) for z >= 0: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, within 1.5e-7.
HWY_INLINE Vector erfc(Vector z) {
  const Floats d;
  const Vector t = hn::Div(hn::Set(d, 1.0F), hn::MulAdd(hn::Set(d, 0.3275911F), z, hn::Set(d, 1.0F)));
  Vector sum = hn::Set(d, 1.061405429F);
  for (const float coefficient : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F})
    sum = hn::MulAdd(sum, t, hn::Set(d, coefficient));
  return hn::Mul(hn::Mul(sum, t), exp_of_minus(hn::Mul(z, z)));
}

// Comparisons with NaN are false, and keep it.
template <Activation activation>
HWY_INLINE Vector activate(Vector v, float alpha, float beta) {
  const Floats d;
  const Vector zero = hn::Zero(d);
  if constexpr (activation == Activation::relu) {
    return hn::IfThenElse(hn::Lt(v, zero), zero, v);
  } else if constexpr (activation == Activation::clip) {
    const Vector lower = hn::Set(d, alpha), upper = hn::Set(d, beta);
    v = hn::IfThenElse(hn::Lt(v, lower), lower, v);
    return hn::IfThenElse(hn::Gt(v, upper), upper, v);
  } else if constexpr (activation == Activation::silu) {
    return times_sigmoid(v, v);
  } else if constexpr (activation == Activation::gelu_erf) {
    const Vector half_tail =
        hn::Mul(hn::Set(d, 0.5F), erfc(hn::Mul(hn::Abs(v), hn::Set(d, 0.70710678118654752F))));
    const Vector share = hn::IfThenElse(hn::Lt(v, zero), half_tail, hn::Sub(hn::Set(d, 1.0F), half_tail));
    return hn::Mul(v, share);
  } else if constexpr (activation == Activation::gelu_tanh) {
    // (1 + tanh(u)) / 2 is the sigmoid of 2u.
    const Vector cube = hn::Mul(hn::Mul(v, v), v);
    const Vector u = hn::MulAdd(hn::Set(d, 0.044715F), cube, v);
    return times_sigmoid(v, hn::Mul(hn::Set(d, 1.5957691216057308F), u));
  } else if constexpr (activation == Activation::hardswish) {
    const Vector three = hn::Set(d, 3.0F);
    const Vector gate = hn::Max(hn::Add(v, three), zero);
    const Vector below = hn::Mul(hn::Mul(v, gate), hn::Set(d, 1.0F / 6));  // NaN for NaN, by the product
    return hn::IfThenElse(hn::Ge(v, three), v, below);
  } else if constexpr (activation == Activation::leaky_relu) {
    return hn::IfThenElse(hn::Gt(v, zero), v, hn::Mul(hn::Set(d, alpha), v));
  } else if constexpr (activation == Activation::sigmoid) {
    return hn::IfThenElse(hn::IsNaN(v), v, sigmoid(v));
  } else {
    static_assert(activation == Activation::none);
    return v;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
