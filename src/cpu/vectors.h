// What the sources of vector code have in common. Each is compiled once for every instruction set by
// Highway's foreach_target.h (docs/decisions/0004), and includes this before it.
#pragma once

// Sizeless vectors (SVE, RVV) cannot stand in arrays, as accumulators do; those processors take NEON or
// nothing.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

// Unrolled early, the accumulators are scalars before GCC assigns registers; unrolled late (by -O3 alone) the
// tile goes through the stack once at entry and once at exit.
#ifdef __clang__
#define CONVTUNE_UNROLL _Pragma("unroll")
#else
#define CONVTUNE_UNROLL _Pragma("GCC unroll 32")
#endif

// After HWY_ONCE: of the objects of this name, one an instruction set, that whose vectors have so many bits;
// null where there is none.
#define CONVTUNE_KERNELS_OF_WIDTH(Kernels, vector_bits, object)                            \
  kernels_of_width<Kernels>(vector_bits, HWY_CHOOSE_AVX3(object), HWY_CHOOSE_AVX2(object), \
                            HWY_CHOOSE_SSE4(object), HWY_CHOOSE_NEON(object))

namespace convtune::cpu {

template <class Kernels>
const Kernels* kernels_of_width(int vector_bits, const Kernels* avx512, const Kernels* avx2,
                                const Kernels* sse4, const Kernels* neon) {
  if (vector_bits == 512) return avx512;
  if (vector_bits == 256) return avx2;
  if (vector_bits == 128) return sse4 != nullptr ? sse4 : neon;
  return nullptr;
}

}  // namespace convtune::cpu
