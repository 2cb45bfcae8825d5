// Multiply-adds of words: of f32, and of pairs of bf16 where the instruction set has them, which
// CONVTUNE_BF16_PAIRS says. Included once for each target, as vectors-inl.h is, behind
// <hwy/foreach_target.h>.
#if defined(CONVTUNE_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_PRODUCTS_INL
#undef CONVTUNE_PRODUCTS_INL
#else
#define CONVTUNE_PRODUCTS_INL
#endif

#include "cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

struct F32Products {
  static HWY_INLINE Vector add(Vector weights, Vector x, Vector sums) { return hn::MulAdd(weights, x, sums); }
};

#undef CONVTUNE_BF16_PAIRS
#if HWY_TARGET == HWY_AVX3 && HWY_ARCH_X86
#define CONVTUNE_BF16_PAIRS 1
// Both products of each lane's pairs. Highway 1.0 widens them instead, and a target of the compiler's for
// this one instruction would be a fourth copy of everything. Denormal bf16 operands and results count as 0.
struct Bf16Products {
  static HWY_INLINE Vector add(Vector weights, Vector x, Vector sums) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums.raw) : "v"(weights.raw), "v"(x.raw));
    return sums;
  }
};
#else
#define CONVTUNE_BF16_PAIRS 0
#endif

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
