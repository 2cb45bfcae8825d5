// Several instructions in one statement, each for one kernel or two: how long a kernel compiles is how many
// statements and branches it has.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

// ---- Stores to shared memory ---------------------------------------------------------------------

// Four numbers rounded to TF32 by adding half of what the lower 13 bits are worth, `offset` bytes behind
// `to`; `largest` becomes the largest absolute value, NaN where one is.
__device__ __forceinline__ void st_shared_v4_rounded_if(unsigned to, int offset, const unsigned* values,
                                                        float& largest, bool stores) {
  asm volatile(
      "{\n.reg .pred stores;\n.reg .f32 size;\n.reg .b32 at, b0, b1, b2, b3;\n"
      "abs.f32 size, %1;\nmax.NaN.f32 %0, %0, size;\nadd.s32 b0, %1, 4096;\n"
      "abs.f32 size, %2;\nmax.NaN.f32 %0, %0, size;\nadd.s32 b1, %2, 4096;\n"
      "abs.f32 size, %3;\nmax.NaN.f32 %0, %0, size;\nadd.s32 b2, %3, 4096;\n"
      "abs.f32 size, %4;\nmax.NaN.f32 %0, %0, size;\nadd.s32 b3, %4, 4096;\n"
      "setp.ne.b32 stores, %6, 0;\nadd.s32 at, %5, %7;\n"
      "@stores st.shared.v4.b32 [at], {b0, b1, b2, b3};\n}"
      : "+f"(largest)
      : "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3]), "r"(to),
        "r"(static_cast<unsigned>(stores)), "r"(offset)
      : "memory");
}

// Stores a number `offset` bytes behind `to`, unless `condition` is negative.
__device__ inline void st_shared_unless_negative(unsigned to, int offset, float value, int condition) {
  asm volatile(
      "{\n.reg .pred stores;\n.reg .b32 at;\nadd.s32 at, %0, %1;\nsetp.ge.s32 stores, %3, 0;\n"
      "@stores st.shared.f32 [at], %2;\n}" ::"r"(to),
      "r"(offset), "f"(value), "r"(condition)
      : "memory");
}

// Stores two numbers, the second 32 bytes behind the first.
__device__ inline void st_shared_two(unsigned to, float first, float second) {
  asm volatile("st.shared.f32 [%0], %1;\nst.shared.f32 [%0 + 32], %2;" ::"r"(to), "f"(first), "f"(second)
               : "memory");
}
// Stores each of two numbers to its own address, if it is wanted.
__device__ inline void st_shared_two_if(const unsigned (&to)[2], float first, float second,
                                        const bool (&stores)[2]) {
  asm volatile(
      "{\n"
      ".reg .pred stores;\n"
      "setp.ne.b32 stores, %4, 0;\n"
      "@stores st.shared.f32 [%0], %2;\n"
      "setp.ne.b32 stores, %5, 0;\n"
      "@stores st.shared.f32 [%1], %3;\n"
      "}" ::"r"(to[0]),
      "r"(to[1]), "f"(first), "f"(second), "r"(static_cast<unsigned>(stores[0])),
      "r"(static_cast<unsigned>(stores[1]))
      : "memory");
}
// Stores two numbers 32 bytes apart in global memory, each if it is wanted.
__device__ inline void st_global_two_if(float* to, float first, float second, const bool (&stores)[2]) {
  asm volatile(
      "{\n"
      ".reg .pred stores;\n"
      "setp.ne.b32 stores, %3, 0;\n"
      "@stores st.global.f32 [%0], %1;\n"
      "setp.ne.b32 stores, %4, 0;\n"
      "@stores st.global.f32 [%0 + 32], %2;\n"
      "}" ::"l"(to),
      "f"(first), "f"(second), "r"(static_cast<unsigned>(stores[0])), "r"(static_cast<unsigned>(stores[1]))
      : "memory");
}

// ---- Global memory -------------------------------------------------------------------------------

// Loads four words: word i from `from` + sources[0] + i * kWords, or 0 without a load where sources[i] is
// negative. Only the first of `sources` is an index; of the others the sign alone counts. The memory must be
// constant while the kernel runs. The statement is volatile, so that the compiler issues all loads here
// instead of each where its value is used.
template <long long kWords>
__device__ __forceinline__ void ld_global_four_if(unsigned (&to)[4], const float* from,
                                                  const int (&sources)[4]) {
  asm volatile(
      "{\n.reg .pred there;\n.reg .b64 at;\nmad.wide.s32 at, %5, 4, %4;\n"
      "setp.ge.s32 there, %5, 0;\nmov.b32 %0, 0;\n@there ld.global.nc.b32 %0, [at];\n"
      "setp.ge.s32 there, %6, 0;\nmov.b32 %1, 0;\n@there ld.global.nc.b32 %1, [at+%9];\n"
      "setp.ge.s32 there, %7, 0;\nmov.b32 %2, 0;\n@there ld.global.nc.b32 %2, [at+%10];\n"
      "setp.ge.s32 there, %8, 0;\nmov.b32 %3, 0;\n@there ld.global.nc.b32 %3, [at+%11];\n}"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "l"(from), "r"(sources[0]), "r"(sources[1]), "r"(sources[2]), "r"(sources[3]), "n"(kWords * 4),
        "n"(kWords * 8), "n"(kWords * 12));
}

// Copies a word of each of four rows in shared memory, which are kPitch bytes apart, to four rows of global
// memory, which are `row` floats and kRow bytes apart. Only the first `left` rows are stored: none where it
// is 0 or less, all four from 4 on.
template <int kPitch, int kRow>
__device__ __forceinline__ void copy_four_rows(float* to, long long row, unsigned from, int left) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .f32 v<4>;\n"
      "ld.shared.f32 v0, [%4];\nld.shared.f32 v1, [%4 + %6];\n"
      "ld.shared.f32 v2, [%4 + %6 * 2];\nld.shared.f32 v3, [%4 + %6 * 3];\n"
      "setp.gt.s32 p, %5, 0;\n@p st.global.f32 [%0], v0;\n"
      "setp.gt.s32 p, %5, 1;\n@p st.global.f32 [%1 + %7], v1;\n"
      "setp.gt.s32 p, %5, 2;\n@p st.global.f32 [%2 + %7 * 2], v2;\n"
      "setp.gt.s32 p, %5, 3;\n@p st.global.f32 [%3 + %7 * 3], v3;\n}" ::"l"(to),
      "l"(to + row), "l"(to + 2 * row), "l"(to + 3 * row), "r"(from), "r"(left), "n"(kPitch), "n"(kRow)
      : "memory");
}

// ---- Sums ----------------------------------------------------------------------------------------

// Adds four and four numbers; kCuts: and makes zeros of those that are negative. `trace` becomes NaN where a
// sum is not finite, since zero times such a number is NaN, which the maximum passes on.
template <bool kCuts>
__device__ __forceinline__ void add_four(float (&sums)[4], const float (&more)[4], float& trace) {
  asm("{\n.reg .f32 t, u;\n.reg .pred cuts;\nsetp.ne.s32 cuts, %9, 0;\n"
      "add.f32 %0, %0, %5;\nfma.rn.f32 t, %0, 0f00000000, 0f00000000;\n@cuts max.NaN.f32 %0, %0, t;\n"
      "add.f32 %1, %1, %6;\nfma.rn.f32 t, %1, 0f00000000, 0f00000000;\n@cuts max.NaN.f32 %1, %1, t;\n"
      "add.f32 %2, %2, %7;\nfma.rn.f32 t, %2, 0f00000000, 0f00000000;\n@cuts max.NaN.f32 %2, %2, t;\n"
      "add.f32 %3, %3, %8;\nfma.rn.f32 t, %3, 0f00000000, 0f00000000;\n@cuts max.NaN.f32 %3, %3, t;\n"
      "add.f32 t, %0, %1;\nadd.f32 u, %2, %3;\nadd.f32 t, t, u;\nfma.rn.f32 %4, t, 0f00000000, %4;\n}"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(trace)
      : "f"(more[0]), "f"(more[1]), "f"(more[2]), "f"(more[3]), "n"(static_cast<int>(kCuts)));
}

}  // namespace convtune::ptx
