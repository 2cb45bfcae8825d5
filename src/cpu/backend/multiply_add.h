// Fused multiply-adds and nothing else, for the ceiling: compiled for every instruction set.
#pragma once

#include <cstdint>

namespace convtune::cpu {

struct MultiplyAddKernel {
  int flops;                          // operations of one round
  float (*run)(std::int64_t rounds);  // what it answers only keeps the work from being left out
};

// The kernel for vectors of `vector_bits` bits; one float at a time where there are none.
const MultiplyAddKernel& multiply_add_kernel(int vector_bits);

}  // namespace convtune::cpu
