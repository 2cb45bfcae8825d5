// Lanes of two vectors in another order. Included once for each target, as vectors-inl.h is, behind
// <hwy/foreach_target.h>.
#if defined(CONVTUNE_SHUFFLES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_SHUFFLES_INL
#undef CONVTUNE_SHUFFLES_INL
#else
#define CONVTUNE_SHUFFLES_INL
#endif

#include "cpu/tile/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
// Every second float of two vectors, from the first or the second of them on.
HWY_INLINE Vector every_second(Vector a, Vector b, int first) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i lanes = _mm512_add_epi32(even, _mm512_set1_epi32(first));
  return Vector{_mm512_permutex2var_ps(a.raw, lanes, b.raw)};
}
#else
HWY_INLINE Vector every_second(Vector a, Vector b, int first) {
#if HWY_TARGET == HWY_SCALAR
  return first == 0 ? a : b;
#else
  return first == 0 ? hn::ConcatEven(Floats(), b, a) : hn::ConcatOdd(Floats(), b, a);
#endif
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
