// Words that CUDA gives to device code without an include, for a host's compiler: read before every kernel.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "machine.h"

// Functions of <cmath> that kernels and the twins of src/cuda/ptx call: reading all of it took a quarter of
// the time in which a kernel is compiled (docs/decisions/0203).
extern "C" {
float erff(float) noexcept;
float exp2f(float) noexcept;
float expf(float) noexcept;
float fabsf(float) noexcept;
float fmaf(float, float, float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float rintf(float) noexcept;
float sinf(float) noexcept;
float tanhf(float) noexcept;
}

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static  // memory of fixed size: one block runs at a time. nvrtc.cpp makes the other kind.
#define threadIdx (host_gpu_position->thread)
#define blockIdx (host_gpu_position->block)
#define gridDim (host_gpu_position->grid)
#define blockDim (host_gpu_position->block_extent)

template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a > static_cast<std::common_type_t<A, B>>(b) ? a : b;
}
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return a < static_cast<std::common_type_t<A, B>>(b) ? a : b;
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __saturatef(float value) {  // 0 of NaN
  return value > 0 ? (value < 1 ? value : 1.0f) : 0.0f;
}
template <class T>
inline T __ldg(const T* from) {
  return *from;
}
inline long long clock64() {  // moves on, for those who wait for it
  static long long clock = 0;
  return clock += 1000;
}
inline void __nanosleep(unsigned) {}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((((static_cast<std::uint64_t>(high) << 32) | low) << (by % 32)) >> 32);
}
// Bytes 0 to 7 are those of `a` and `b`; with the upper bit of a selector a byte's sign is repeated.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selectors) {
  const std::uint64_t both = static_cast<std::uint64_t>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned selector = selectors >> (4 * i) & 15;
    unsigned byte = both >> (8 * (selector & 7)) & 255;
    if (selector & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline void __syncthreads() {
  host_gpu::barrier(0, 0, true, 0);
}
inline int __syncthreads_or(int predicate) {
  return host_gpu::barrier(0, 0, true, predicate);
}
inline void __syncwarp(unsigned lanes = ~0u) {
  host_gpu::sync_lanes(lanes);
}

namespace host_gpu {

struct Exchanged {
  unsigned bits, lane, result;
};
inline void shuffle_together(void* const* lanes) {
  for (int i = 0; i < 32; ++i)
    if (auto* const mine = static_cast<Exchanged*>(lanes[i])) {
      const auto* const other = static_cast<const Exchanged*>(lanes[mine->lane % 32]);
      if (!other) fail("a shuffle from lane %u, which has ended", mine->lane % 32);
      mine->result = other->bits;
    }
}
inline void all_together(void* const* lanes) {
  bool all = true;
  for (int i = 0; i < 32; ++i) all = all && (!lanes[i] || static_cast<Exchanged*>(lanes[i])->bits);
  for (int i = 0; i < 32; ++i)
    if (lanes[i]) static_cast<Exchanged*>(lanes[i])->result = all;
}
// Registers of a thread under launch bounds, which are counted out in eights.
constexpr unsigned registers_of(unsigned threads, unsigned blocks = 1) {
  const unsigned room = 65536 / (threads * blocks) / 8 * 8;
  return room < 256 ? room : 256;
}
// Calls a kernel with arguments as the driver gets them.
template <class R, class... Arguments>
inline void call(R (*kernel)(Arguments...), void** arguments) {
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    kernel(*static_cast<std::remove_cvref_t<Arguments>*>(arguments[i])...);
  }
  (std::index_sequence_for<Arguments...>{});
}

}  // namespace host_gpu

template <class T>
inline T __shfl_sync(unsigned, T value, int lane) {
  static_assert(sizeof(T) <= 4);
  host_gpu::Exchanged mine{0, static_cast<unsigned>(lane), 0};
  std::memcpy(&mine.bits, &value, sizeof(T));
  host_gpu::meet(host_gpu::Meeting::shuffle, &mine, host_gpu::shuffle_together);
  std::memcpy(&value, &mine.result, sizeof(T));
  return value;
}
inline int __all_sync(unsigned, int predicate) {
  host_gpu::Exchanged mine{predicate != 0, 0, 0};
  host_gpu::meet(host_gpu::Meeting::all, &mine, host_gpu::all_together);
  return static_cast<int>(mine.result);
}
