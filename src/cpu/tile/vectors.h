// What the sources of vector code have in common. Each is compiled once for every instruction set of the
// table by Highway's foreach_target.h (docs/decisions/0004), and includes this before it and vectors-inl.h
// behind it.
#pragma once

#include <initializer_list>

#include "cpu/tile/instruction_sets.h"

// Unrolled early, the accumulators are scalars before GCC assigns registers; unrolled late (by -O3 alone) the
// tile goes through the stack once at entry and once at exit.
#ifdef __clang__
#define CONVTUNE_UNROLL _Pragma("unroll")
#else
#define CONVTUNE_UNROLL _Pragma("GCC unroll 32")
#endif

// After HWY_ONCE: of the objects of this name, one an instruction set, that whose vectors have so many bits;
// null where there is none.
#define CONVTUNE_KERNELS_OF_ROW(name, bits, registers, masks, target, has, object) \
  {bits, HWY_CHOOSE_##target(object)},
#define CONVTUNE_KERNELS_OF_WIDTH(Kernels, vector_bits, object) \
  kernels_of_width<Kernels>(vector_bits, {CONVTUNE_INSTRUCTION_SETS(CONVTUNE_KERNELS_OF_ROW, object)})

namespace convtune::cpu {

template <class Kernels>
struct KernelsOfWidth {
  int vector_bits;
  const Kernels* kernels;
};

template <class Kernels>
const Kernels* kernels_of_width(int vector_bits, std::initializer_list<KernelsOfWidth<Kernels>> all) {
  for (const auto& one : all)
    if (one.vector_bits == vector_bits && one.kernels != nullptr) return one.kernels;
  return nullptr;
}

}  // namespace convtune::cpu
