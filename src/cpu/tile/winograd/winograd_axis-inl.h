// Winograd's transforms along one axis: winograd_transform.h's matrices with their common sums said once, and
// the load that parts every second float. Included once for each target, as outputs-inl.h is, behind
// <hwy/foreach_target.h>.
#if defined(CONVTUNE_WINOGRAD_AXIS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_WINOGRAD_AXIS_INL
#undef CONVTUNE_WINOGRAD_AXIS_INL
#else
#define CONVTUNE_WINOGRAD_AXIS_INL
#endif

#include "cpu/tile/outputs-inl.h"
#include "cpu/tile/winograd/winograd_transform.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE Vector constant(double value) {
  return hn::Set(Floats(), static_cast<float>(value));
}

// v = B^T d and y = A^T v along one axis.
template <int m>
struct Axis;

template <>
struct Axis<2> {
  static HWY_INLINE void input(const SizedVector* d, SizedVector* v) {
    v[0] = hn::Sub(d[0], d[2]);
    v[1] = hn::Add(d[1], d[2]);
    v[2] = hn::Sub(d[2], d[1]);
    v[3] = hn::Sub(d[1], d[3]);
  }
  static HWY_INLINE void output(const SizedVector* v, SizedVector* y) {
    y[0] = hn::Add(v[0], hn::Add(v[1], v[2]));
    y[1] = hn::Sub(hn::Sub(v[1], v[2]), v[3]);
  }
};

template <>
struct Axis<4> : WinogradPoints {
  static HWY_INLINE void input(const SizedVector* d, SizedVector* v) {
    const Vector square_a = constant(kA2), square_b = constant(kB2), product = constant(kA2 * kB2),
                 sum = constant(kA2 + kB2);
    v[0] = hn::MulAdd(product, d[0], hn::NegMulAdd(sum, d[2], d[4]));
    const Vector even_a = hn::NegMulAdd(square_b, d[2], d[4]), odd_a = hn::NegMulAdd(square_b, d[1], d[3]);
    v[1] = hn::MulAdd(constant(kA), odd_a, even_a);
    v[2] = hn::NegMulAdd(constant(kA), odd_a, even_a);
    const Vector even_b = hn::NegMulAdd(square_a, d[2], d[4]), odd_b = hn::NegMulAdd(square_a, d[1], d[3]);
    v[3] = hn::MulAdd(constant(kB), odd_b, even_b);
    v[4] = hn::NegMulAdd(constant(kB), odd_b, even_b);
    v[5] = hn::MulAdd(product, d[1], hn::NegMulAdd(sum, d[3], d[5]));
  }
  static HWY_INLINE void output(const SizedVector* v, SizedVector* y) {
    const Vector sum_a = hn::Add(v[1], v[2]), sum_b = hn::Add(v[3], v[4]);
    const Vector difference_a = hn::Sub(v[1], v[2]), difference_b = hn::Sub(v[3], v[4]);
    y[0] = hn::Add(v[0], hn::Add(sum_a, sum_b));
    y[1] = hn::MulAdd(constant(kB), difference_b, hn::Mul(constant(kA), difference_a));
    y[2] = hn::MulAdd(constant(kB2), sum_b, hn::Mul(constant(kA2), sum_a));
    y[3] = hn::Add(hn::MulAdd(constant(kB2 * kB), difference_b, hn::Mul(constant(kA2 * kA), difference_a)),
                   v[5]);
  }
};

// d[l][t] = from[2*t + l] for l in [0, 2).
HWY_INLINE void load_pairs(const float* from, SizedVector* d) {
  Vector a, b;
  hn::LoadInterleaved2(Floats(), from, a, b);
  d[0] = a, d[1] = b;
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
