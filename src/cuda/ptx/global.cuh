// Loads of global memory with a condition, zeros where it is 0: of what nothing writes while the kernel runs.
// They stay where they are written, ahead of what needs them.
#pragma once

#include "cuda/ptx/shared.cuh"

namespace convtune::ptx {

// kBytes behind `from`: in the instruction, where a sum of its own would take two more.
template <long long kBytes = 0>
__device__ inline void ld_global_u16_if(unsigned& to, const void* from, unsigned wanted) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b16 half;\nsetp.ne.b32 p, %2, 0;\nmov.b16 half, 0;\n"
      "@p ld.global.nc.b16 half, [%1 + %3];\nmov.b32 %0, {half, 0};\n}"
      : "=r"(to)
      : "l"(from), "r"(wanted), "n"(kBytes)
      : "memory");
}
template <long long kBytes = 0>
__device__ inline void ld_global_if(unsigned& to, const void* from, unsigned wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.b32 %0, 0;\n@p ld.global.nc.b32 %0, [%1 + %3];\n}"
      : "=&r"(to)
      : "l"(from), "r"(wanted), "n"(kBytes)
      : "memory");
}
// Two or four words at a multiple of as many.
template <long long kBytes = 0>
__device__ inline void ld_global_v2_if(unsigned (&to)[2], const void* from, unsigned wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n"
      "@p ld.global.nc.v2.b32 {%0, %1}, [%2 + %4];\n}"
      : "=&r"(to[0]), "=&r"(to[1])
      : "l"(from), "r"(wanted), "n"(kBytes)
      : "memory");
}
template <long long kBytes = 0>
__device__ inline void ld_global_v4_if(unsigned (&to)[4], const void* from, unsigned wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4 + %6];\n}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "l"(from), "r"(wanted), "n"(kBytes)
      : "memory");
}

}  // namespace convtune::ptx
