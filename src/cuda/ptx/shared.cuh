// Loads and stores of shared memory by 32-bit addresses, which is what the instructions take. A condition
// within the statement compiles in less time than a branch around it, and leaves a warp together.
#pragma once

// The instruction that follows, only where the operand of that name is not 0; to be ended by "\n}".
#define CONVTUNE_IF(name) "{\n.reg .pred p;\nsetp.ne.b32 p, " name ", 0;\n@p "

namespace convtune::ptx {

// Shared memory is addressed by 32-bit offsets in most instructions; a generic pointer there traps.
__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- Loads: a word, or two or four at a multiple of as many --------------------------------------

__device__ inline unsigned ld_shared(unsigned from) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
__device__ inline unsigned ld_shared_u16(unsigned from) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
  return value;
}
__device__ inline void ld_shared(float& to, unsigned from) {
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(to) : "r"(from) : "memory");
}
__device__ inline void ld_shared_v2(float& a, float& b, unsigned from) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "r"(from) : "memory");
}
__device__ inline void ld_shared_v2(int& a, int& b, unsigned from) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
}
__device__ inline void ld_shared_v2(unsigned& a, unsigned& b, unsigned from) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from) : "memory");
}
__device__ inline void ld_shared_v4(float& a, float& b, float& c, float& d, unsigned from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
               : "r"(from)
               : "memory");
}
__device__ inline void ld_shared_v4(unsigned (&to)[4], unsigned from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// Zeros where it does not load.
__device__ inline unsigned ld_shared_if(unsigned from, bool loads) {
  unsigned value;
  asm volatile(
      "{\n.reg .pred loads;\nsetp.ne.b32 loads, %2, 0;\nmov.b32 %0, 0;\n"
      "@loads ld.shared.b32 %0, [%1];\n}"
      : "=&r"(value)
      : "r"(from), "r"(static_cast<unsigned>(loads))
      : "memory");
  return value;
}
__device__ inline void ld_shared_v4_if(unsigned* to, unsigned from, bool loads) {
  asm volatile(
      "{\n.reg .pred loads;\nsetp.ne.b32 loads, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@loads ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "r"(from), "r"(static_cast<unsigned>(loads))
      : "memory");
}

// ---- Stores ------------------------------------------------------------------------------------

__device__ inline void st_shared(unsigned to, unsigned value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
// The lower half of `value`.
__device__ inline void st_shared_u16(unsigned to, unsigned value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(static_cast<unsigned short>(value)) : "memory");
}
__device__ inline void st_shared(unsigned to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
__device__ inline void st_shared_if(unsigned to, unsigned value, bool stores) {
  asm volatile(CONVTUNE_IF("%2") "st.shared.b32 [%0], %1;\n}" ::"r"(to), "r"(value),
               "r"(static_cast<unsigned>(stores))
               : "memory");
}
__device__ inline void st_shared_v2(unsigned to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ inline void st_shared_v4(unsigned to, const float (&values)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(values[0]), "f"(values[1]),
               "f"(values[2]), "f"(values[3])
               : "memory");
}
__device__ inline void st_shared_v4(unsigned to, const unsigned (&values)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(values[0]), "r"(values[1]),
               "r"(values[2]), "r"(values[3])
               : "memory");
}

// ---- Atomics -----------------------------------------------------------------------------------

__device__ inline void red_shared_min(unsigned to, int value) {
  asm volatile("red.shared.min.s32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ inline void red_shared_max(unsigned to, int value) {
  asm volatile("red.shared.max.s32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

}  // namespace convtune::ptx
