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
// v, or a number of its sign and of magnitude `most`, whichever is less; of NaN, `most`.
HWY_INLINE Vector bounded(Vector v, Vector most) {
  constexpr int kLessMagnitude = 2;  // and the first one's sign
  return {_mm512_range_ps(v.raw, most.raw, kLessMagnitude)};
}

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
  return hn::Div(v, hn::Add(hn::Set(d, 1.0F), exp_within_104(bounded(u, hn::Set(d, 104.0F)))));
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
// The normal distribution's share of [0, v], less than 2^-22 off: a polynomial of 32, in v itself, each
// around a multiple of kStep. From the last of them on it is a half. A NaN in v does not show.
HWY_INLINE Vector share_from_zero(Vector v) {
  constexpr float kStep = 0.17F, kLast = 31;
  constexpr int kLessMagnitude = 2, kNoSign = 8;
  alignas(64) static constexpr float kPolynomials[4][32] = {
      {-0.06628796F,   -0.0635589F,    -0.055435892F,  -0.043157116F,
       -0.028356243F,  -0.012873772F,  0.001558194F,   0.013577118F,
       0.02234899F,    0.027607115F,   0.029583095F,   0.028864611F,
       0.026223885F,   0.022457236F,   0.018263817F,   0.014175609F,
       0.0105365F,     0.0075186156F,  0.0051603587F,  0.003411545F,
       0.0021749453F,  0.0013383564F,  7.955162e-04F,  4.5703768e-04F,
       2.5392717e-04F, 1.3649429e-04F, 7.10124e-05F,   3.576943e-05F,
       1.7449098e-05F, 8.245686e-06F,  3.7754628e-06F, 0},
      {-1.43349125e-05F, -9.488562e-04F,  -0.0073556644F,  -0.023146838F,
       -0.04963055F,     -0.08515359F,    -0.12556277F,    -0.16528854F,
       -0.19870222F,     -0.22135758F,    -0.23081014F,    -0.22686997F,
       -0.21132173F,     -0.18727946F,    -0.15840273F,    -0.12818284F,
       -0.09943815F,     -0.074068986F,   -0.053047314F,   -0.036569815F,
       -0.02429002F,     -0.015557207F,   -0.009614741F,   -0.0057373177F,
       -0.0033073106F,   -0.001842626F,   -9.925975e-04F,  -5.1717856e-04F,
       -2.6072306e-04F,  -1.2720833e-04F, -6.0084385e-05F, 0},
      {0.39894256F,  0.39905202F,    0.40076405F,    0.40757707F,
       0.4234262F,   0.45064992F,    0.48841664F,    0.53222764F,
       0.57468486F,  0.6072406F,     0.6223182F,     0.6151171F,
       0.5845928F,   0.533426F,      0.4671273F,     0.39265114F,
       0.31695497F,  0.24585743F,    0.18338609F,    0.13162895F,
       0.090977244F, 0.060588174F,   0.038902227F,   0.024095157F,
       0.014403604F, 0.008313755F,   0.0046354183F,  0.0024975345F,
       0.001300815F, 6.5514684e-04F, 3.1915854e-04F, 0},
      {-7.7656076e-10F, -4.280723e-06F, -1.589782e-04F, -0.0011448473F,
       -0.004316929F,   -0.011285546F,  -0.023067396F,  -0.0391887F,
       -0.057184696F,   -0.07278756F,   -0.08080685F,   -0.07642078F,
       -0.056439932F,   -0.020132681F,  0.030617723F,   0.09181132F,
       0.15826885F,     0.22469635F,    0.28658798F,    0.34078562F,
       0.38564906F,     0.42090252F,    0.4472845F,     0.46613437F,
       0.47901955F,     0.48746023F,    0.49276632F,    0.49597108F,
       0.49783263F,     0.49887347F,    0.49943408F,    0.5F}};
  const Floats d;
  const Vector u = {_mm512_range_ps(v.raw, hn::Set(d, kLast * kStep).raw, kLessMagnitude + kNoSign)};
  // Whose last bits are the piece.
  const Vector piece = hn::MulAdd(u, hn::Set(d, 1 / kStep), hn::Set(d, 0x1.8p23F));
  const auto coefficient = [&](int power) HWY_ATTR {
    const float* const of_power = kPolynomials[3 - power];
    return Vector{_mm512_permutex2var_ps(_mm512_load_ps(of_power), _mm512_castps_si512(piece.raw),
                                         _mm512_load_ps(of_power + 16))};
  };
  Vector share = coefficient(3);
  for (int power = 2; power >= 0; --power) share = hn::MulAdd(share, u, coefficient(power));
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

// No less than `bound`, no more: x86's instructions pass on the second operand where one is NaN.
HWY_INLINE Vector at_least(Vector bound, Vector v) {
#if HWY_ARCH_X86
  return hn::Max(bound, v);
#else
  return hn::IfThenElse(hn::Lt(v, bound), bound, v);
#endif
}
HWY_INLINE Vector at_most(Vector bound, Vector v) {
#if HWY_ARCH_X86
  return hn::Min(bound, v);
#else
  return hn::IfThenElse(hn::Gt(v, bound), bound, v);
#endif
}

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
    if constexpr (activation == Activation::hardswish) {
      // Three and six times the last number below a sixth are numbers, too: of -3 it is 0, of 3 nearly 1.
      constexpr float kSixth = 0x1.555554p-3F;
      const Vector bound = hn::Set(d, 3.0F);
      return hn::Mul(v, hn::MulAdd(bounded(v, bound), hn::Set(d, kSixth), hn::Set(d, 3 * kSixth)));
    }
    if constexpr (activation == Activation::gelu_tanh) {
      const Vector u = hn::MulAdd(hn::Mul(v, v), hn::Set(d, -0.044715F * kTanh), hn::Set(d, -kTanh));
      return hn::Mul(v, short_gate(hn::Mul(v, u)));
    }
  }
#endif
  if constexpr (activation == Activation::relu) {
    return at_least(zero, v);
  } else if constexpr (activation == Activation::clip) {
    return at_most(hn::Set(d, beta), at_least(hn::Set(d, alpha), v));
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
#if HWY_TARGET == HWY_AVX3
    const Vector gate = hn::Add(bounded(v, hn::Set(d, 3.0F)), hn::Set(d, 3.0F));
#else
    const Vector gate = hn::Min(hn::Max(hn::Add(v, hn::Set(d, 3.0F)), zero), hn::Set(d, 6.0F));
#endif
    return hn::Mul(v, hn::Mul(gate, hn::Set(d, 1.0F / 6)));  // of 6 it is 1; NaN for NaN, by the product
  } else if constexpr (activation == Activation::leaky_relu) {
#if HWY_TARGET == HWY_AVX3
    const __mmask16 scaled = _mm512_cmp_ps_mask(v.raw, zero.raw, _CMP_NGT_UQ);
    return {_mm512_mask_mul_ps(v.raw, scaled, v.raw, hn::Set(d, alpha).raw)};
#else
    return hn::IfThenElse(hn::Gt(v, zero), v, hn::Mul(hn::Set(d, alpha), v));
#endif
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
