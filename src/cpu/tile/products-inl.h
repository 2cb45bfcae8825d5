// Multiply-adds of words: of f32, and of pairs of bf16 where the instruction set has them, which
// CONVTUNE_BF16_PAIRS says. Included once for each target, as vectors-inl.h is, behind
// <hwy/foreach_target.h>.
#if defined(CONVTUNE_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_PRODUCTS_INL
#undef CONVTUNE_PRODUCTS_INL
#else
#define CONVTUNE_PRODUCTS_INL
#endif

#include "cpu/tile/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

struct F32Products {
  static HWY_INLINE Vector add(Vector weights, Vector x, Vector sums) { return hn::MulAdd(weights, x, sums); }
};

// What one tap adds to a register tile's sums: a broadcast a channel, a load a vector and channels * vectors
// multiply-adds. What there are fewer of, channels or vectors, waits in registers beside the sums while the
// others pass, so that 12 sums need no more than 16 of them.
template <class Products, int channels, int vectors, class Load>
HWY_INLINE void add_tap(SizedVector (&sums)[channels][vectors], Load&& load, const float* weights) {
  const Floats d;
  if constexpr (channels < vectors) {
    SizedVector weight[channels];
    CONVTUNE_UNROLL
    for (int i = 0; i < channels; ++i) weight[i] = hn::Set(d, weights[i]);
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Vector value = load(v);
      CONVTUNE_UNROLL
      for (int i = 0; i < channels; ++i) sums[i][v] = Products::add(weight[i], value, sums[i][v]);
    }
  } else {
    SizedVector value[vectors];
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) value[v] = load(v);
    CONVTUNE_UNROLL
    for (int i = 0; i < channels; ++i) {
      const Vector weight = hn::Set(d, weights[i]);
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = Products::add(weight, value[v], sums[i][v]);
    }
  }
}

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
