// Numbers rounded to TF32 while they go to where products read them, and whether one of them is not finite,
// which products with padding or rounding would spread.
#pragma once

namespace convtune {

// The least number whose nearest TF32 is infinity. (Inline, or a random number becomes part of its name.)
inline constexpr float kTf32Overflow = 0x1.ffep127f;

__device__ inline bool is_finite(unsigned bits) {
  return (bits & 0x7f800000) != 0x7f800000;
}

// The larger, the smaller; NaN if one is.
__device__ inline float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
__device__ inline float min_nan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

// Matrix products drop the lower 13 bits: half of what they are worth is added, which rounds as cvt_rna_tf32
// does, in one instruction. A NaN may wrap to a number: `largest`, the largest absolute value so far, becomes
// NaN then.
__device__ inline unsigned round_tf32(unsigned bits, float& largest) {
  largest = max_nan(largest, fabsf(__uint_as_float(bits)));
  return bits + 0x1000;
}

// Stores four numbers so rounded to `offset` bytes behind `to`. One statement, since it is their number that
// compiling waits for.
__device__ __forceinline__ void st_shared_rounded_if(unsigned to, int offset, const unsigned* values,
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

}  // namespace convtune
