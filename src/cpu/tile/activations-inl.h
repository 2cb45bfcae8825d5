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

#if HWY_TARGET == HWY_AVX3
// exp(-u) for |u| up to 104. AVX-512 multiplies by a power of 2 that may leave the range: that takes less
// than the two cases of exp(-|u|).
HWY_INLINE Vector exp_within_104(Vector u) {
  Vector sum, n;
  const Vector e = exp_of_remainder(u, sum, n);
  return {_mm512_scalef_ps(e.raw, n.raw)};
}

// 1 / (1 + exp(-v)), with v's NaN, which the second operands of these two pass on.
HWY_INLINE Vector sigmoid(Vector v) {
  const Floats d;
  const Vector one = hn::Set(d, 1.0F), most = hn::Set(d, 104.0F), least = hn::Set(d, -104.0F);
  const Vector within = {_mm512_min_ps(most.raw, _mm512_max_ps(least.raw, v.raw))};
  return hn::Div(one, hn::Add(one, exp_within_104(within)));
}

// v / (1 + exp(-u)), with v's NaN.
HWY_INLINE Vector times_sigmoid(Vector v, Vector u) {
  const Floats d;
  constexpr int kLessMagnitude = 2;  // and the first one's sign
  const Vector within = {_mm512_range_ps(u.raw, hn::Set(d, 104.0F).raw, kLessMagnitude)};
  return hn::Div(v, hn::Add(hn::Set(d, 1.0F), exp_within_104(within)));
}

// 1 / (1 + 2^t), within 2^-13 of itself: enough of what is rounded to 8 bits. The polynomial, of t's
// fraction, is within 2^-18; 0 and 1 for infinities, as no bounds are asked for.
HWY_INLINE Vector short_gate(Vector t) {
  constexpr int kFraction = 9;  // t less its floor
  const Floats d;
  const Vector fraction = {_mm512_reduce_ps(t.raw, kFraction)};
  Vector e = hn::Set(d, 0.013534168F);
  for (const float coefficient : {0.05201146F, 0.24144275F, 0.69300383F, 1.0000026F})
    e = hn::MulAdd(e, fraction, hn::Set(d, coefficient));
  const Vector power = {_mm512_scalef_ps(e.raw, t.raw)};  // by 2 to t's floor
  return {_mm512_rcp14_ps(hn::Add(hn::Set(d, 1.0F), power).raw)};
}
#else
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

// 1 / (1 + exp(-v)) of a number.
HWY_INLINE Vector sigmoid_of_number(Vector v) {
  const Floats d;
  const Vector one = hn::Set(d, 1.0F), e = exp_of_minus(hn::Abs(v));
  return hn::Div(hn::IfThenElse(hn::Lt(v, hn::Zero(d)), e, one), hn::Add(one, e));
}

// The same, with v's NaN.
HWY_INLINE Vector sigmoid(Vector v) {
  return hn::IfThenElse(hn::IsNaN(v), v, sigmoid_of_number(v));
}

// v / (1 + exp(-u)), with v's NaN.
HWY_INLINE Vector times_sigmoid(Vector v, Vector u) {
  return hn::Mul(v, sigmoid_of_number(u));
}
#endif

#if HWY_TARGET == HWY_AVX3
// The normal distribution's share of [0, v], less than 2^-22 off: a polynomial of 16 around the nearest
// multiple of kStep. From 14.5 of them on it is a half. A NaN in v does not show.
HWY_INLINE Vector share_from_zero(Vector v) {
  constexpr float kStep = 0.352F, kPieces = 15;
  alignas(64) static constexpr float kPolynomials[5][16] = {
      {6.53379902e-05F, 0.000241040601F, 0.000348946691F, 0.000289632066F, 0.000135867056F, -8.37666903e-06F,
       -8.37527332e-05F, -9.23679108e-05F, -6.71720336e-05F, -3.77670112e-05F, -1.73274057e-05F,
       -6.65533844e-06F, -2.17119259e-06F, -6.07104198e-07F, -1.46397298e-07F, 0},
      {-0.00292737689F, -0.0023760437F, -0.00114042859F, 0.000183360084F, 0.00104703836F, 0.00128549244F,
       0.0010764437F, 0.000707457424F, 0.000383151171F, 0.00017500903F, 6.82993777e-05F, 2.29592169e-05F,
       6.68402026e-06F, 1.69169573e-06F, 3.73278539e-07F, 0},
      {4.56398675e-06F, -0.00817699451F, -0.013580312F, -0.0149443597F, -0.0129146315F, -0.00924372207F,
       -0.00561139453F, -0.0029258139F, -0.00132023939F, -0.000518086541F, -0.00017739358F, -5.31235819e-05F,
       -1.39382646e-05F, -3.20831282e-06F, -6.48540663e-07F, 0},
      {0.14042744F, 0.131991163F, 0.109605104F, 0.0804093704F, 0.0521160513F, 0.0298417248F, 0.0150960088F,
       0.00674658362F, 0.00266370806F, 0.000929110218F, 0.000286300579F, 7.79377006e-05F, 1.87429923e-05F,
       3.98190878e-06F, 7.47307297e-07F, 0},
      {0, 0.137580872F, 0.259283602F, 0.35451588F, 0.420434475F, 0.460796088F, 0.482656777F, 0.493130207F,
       0.497568727F, 0.499232531F, 0.499784231F, 0.499946028F, 0.49998799F, 0.499997616F, 0.499999583F,
       0.5F}};
  const Floats d;
  const Vector magic = hn::Set(d, 0x1.8p23F);
  const Vector steps = hn::Min(hn::Mul(hn::Abs(v), hn::Set(d, 1 / kStep)), hn::Set(d, kPieces));
  const Vector sum = hn::Add(steps, magic);  // whose last bits are the piece
  const Vector t = hn::Sub(steps, hn::Sub(sum, magic));
  const auto coefficient = [&](int power) HWY_ATTR {
    return Vector{
        _mm512_permutexvar_ps(_mm512_castps_si512(sum.raw), _mm512_load_ps(kPolynomials[4 - power]))};
  };
  Vector share = coefficient(4);
  for (int power = 3; power >= 0; --power) share = hn::MulAdd(share, t, coefficient(power));
  return hn::CopySign(share, v);
}
#else
// erfc(z) for z >= 0: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, within 1.5e-7.
HWY_INLINE Vector erfc(Vector z) {
  const Floats d;
  const Vector t = hn::Div(hn::Set(d, 1.0F), hn::MulAdd(hn::Set(d, 0.3275911F), z, hn::Set(d, 1.0F)));
  Vector sum = hn::Set(d, 1.061405429F);
  for (const float coefficient : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F})
    sum = hn::MulAdd(sum, t, hn::Set(d, coefficient));
  return hn::Mul(hn::Mul(sum, t), exp_of_minus(hn::Mul(z, z)));
}
#endif

// Comparisons with NaN are false, and keep it. `short_of_halves`: of a number that is rounded to a bf16 next.
template <Activation activation, bool short_of_halves = false>
HWY_INLINE Vector activate(Vector v, float alpha, float beta) {
  const Floats d;
  const Vector zero = hn::Zero(d);
#if HWY_TARGET == HWY_AVX3
  if constexpr (short_of_halves) {
    constexpr float kLog2E = 1.44269504F, kTanh = 1.5957691216057308F * kLog2E;
    const Vector of_v = hn::Set(d, -kLog2E);
    if constexpr (activation == Activation::silu) return hn::Mul(v, short_gate(hn::Mul(v, of_v)));
    if constexpr (activation == Activation::sigmoid) return short_gate(hn::Mul(v, of_v));
    if constexpr (activation == Activation::gelu_tanh) {
      const Vector u = hn::MulAdd(hn::Mul(v, v), hn::Set(d, -0.044715F * kTanh), hn::Set(d, -kTanh));
      return hn::Mul(v, short_gate(hn::Mul(v, u)));
    }
  }
#endif
  if constexpr (activation == Activation::relu) {
    return hn::IfThenElse(hn::Lt(v, zero), zero, v);
  } else if constexpr (activation == Activation::clip) {
    const Vector lower = hn::Set(d, alpha), upper = hn::Set(d, beta);
    v = hn::IfThenElse(hn::Lt(v, lower), lower, v);
    return hn::IfThenElse(hn::Gt(v, upper), upper, v);
  } else if constexpr (activation == Activation::silu) {
    return times_sigmoid(v, v);
  } else if constexpr (activation == Activation::gelu_erf) {
#if HWY_TARGET == HWY_AVX3
    return hn::Mul(v, hn::Add(share_from_zero(v), hn::Set(d, 0.5F)));
#else
    const Vector half_tail =
        hn::Mul(hn::Set(d, 0.5F), erfc(hn::Mul(hn::Abs(v), hn::Set(d, 0.70710678118654752F))));
    const Vector share = hn::IfThenElse(hn::Lt(v, zero), half_tail, hn::Sub(hn::Set(d, 1.0F), half_tail));
    return hn::Mul(v, share);
#endif
  } else if constexpr (activation == Activation::gelu_tanh) {
    // (1 + tanh(u)) / 2 is the sigmoid of 2u.
    const Vector cube = hn::Mul(hn::Mul(v, v), v);
    const Vector u = hn::MulAdd(hn::Set(d, 0.044715F), cube, v);
    return times_sigmoid(v, hn::Mul(hn::Set(d, 1.5957691216057308F), u));
  } else if constexpr (activation == Activation::hardswish) {
    const Vector gate = hn::Min(hn::Max(hn::Add(v, hn::Set(d, 3.0F)), zero), hn::Set(d, 6.0F));
    return hn::Mul(v, hn::Mul(gate, hn::Set(d, 1.0F / 6)));  // of 6 it is 1; NaN for NaN, by the product
  } else if constexpr (activation == Activation::leaky_relu) {
    return hn::IfThenElse(hn::Gt(v, zero), v, hn::Mul(hn::Set(d, alpha), v));
  } else if constexpr (activation == Activation::sigmoid) {
    return sigmoid(v);
  } else {
    static_assert(activation == Activation::none);
    return v;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
