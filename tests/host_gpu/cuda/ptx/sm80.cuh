// The twin of src/cuda/ptx/sm80.cuh.
#pragma once

#include "cuda/ptx/shared.cuh"

namespace convtune::ptx {

inline const char* bytes_behind(const void* from, long long bytes) {
  return static_cast<const char*>(from) + bytes;
}

template <long long kBytes = 0>
inline void cp_async_4(unsigned to, const void* from, unsigned source_bytes) {
  host_gpu::cp_async(to, bytes_behind(from, kBytes), 4, source_bytes);
}
inline void cp_async_8(unsigned to, const void* from, unsigned source_bytes) {
  host_gpu::cp_async(to, from, 8, source_bytes);
}
inline void cp_async_16(unsigned to, const void* from, unsigned source_bytes) {
  host_gpu::cp_async(to, from, 16, source_bytes);
}
template <long long kBytes = 0>
inline void cp_async_16_cached(unsigned to, const void* from, unsigned source_bytes) {
  host_gpu::cp_async(to, bytes_behind(from, kBytes), 16, source_bytes);
}
inline void cp_async_4_if(unsigned to, const void* from, unsigned source_bytes, bool wanted) {
  if (wanted) host_gpu::cp_async(to, from, 4, source_bytes);
}
inline void cp_async_16_if(unsigned to, const void* from, unsigned source_bytes, bool wanted) {
  if (wanted) host_gpu::cp_async(to, from, 16, source_bytes);
}
inline void cp_async_16_once_if(unsigned to, const void* from, unsigned source_bytes, bool wanted) {
  if (wanted) host_gpu::cp_async(to, from, 16, source_bytes);
}
template <int kSize, int kTo, long long kFrom>
inline void cp_async_behind(unsigned to, const void* from, unsigned source_bytes) {
  host_gpu::cp_async(to + kTo, bytes_behind(from, kFrom), kSize, source_bytes);
}
template <int kTo, int kTimes, int kMore>
inline void cp_async_16_piece(unsigned to, const void* from, unsigned piece, unsigned times) {
  const unsigned number = times * kTimes + piece + kMore;
  host_gpu::cp_async(to + kTo, bytes_behind(from, 16LL * number), 16, 16);
}
inline void cp_async_commit_group() {
  host_gpu::cp_async_commit();
}
template <int kPending>
inline void cp_async_wait_group() {
  host_gpu::cp_async_wait(kPending);
}

inline void ld_global_v4_uncached(unsigned (&to)[4], const void* from) {
  std::memcpy(to, host_gpu::aligned(from, 16), 16);
}
inline void st_global_if(float* to, float value, bool wanted) {
  if (wanted) *to = value;
}
template <int kBytes = 0>
inline void st_global_v4_if(float* to, const float (&values)[4], bool wanted) {
  if (wanted) std::memcpy(host_gpu::aligned(to + kBytes / 4, 16), values, 16);
}
inline void st_global_v4_if(void* to, const unsigned (&values)[4], bool wanted) {
  if (wanted) std::memcpy(host_gpu::aligned(to, 16), values, 16);
}

inline void ldmatrix_x4(unsigned (&to)[4], unsigned row_address) {
  host_gpu::ldmatrix(to, 4, row_address, false);
}
inline void ldmatrix_x2(unsigned& first, unsigned& second, unsigned row_address) {
  unsigned to[2];
  host_gpu::ldmatrix(to, 2, row_address, false);
  first = to[0], second = to[1];
}
inline void ldmatrix_x4_trans(unsigned (&to)[4], unsigned row_address) {
  host_gpu::ldmatrix(to, 4, row_address, true);
}

inline void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  host_gpu::mma(host_gpu::Type::tf32, 8, d, a, b);
}
inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  host_gpu::mma(host_gpu::Type::f16, 16, d, a, b);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  host_gpu::mma(host_gpu::Type::bf16, 16, d, a, b);
}
inline void mma_m16n8k8_f16(float (&d)[4], unsigned a0, unsigned a1, unsigned b) {
  const unsigned a[4] = {a0, a1}, of_b[2] = {b};
  host_gpu::mma(host_gpu::Type::f16, 8, d, a, of_b);
}
inline void mma_m16n8k8_bf16(float (&d)[4], unsigned a0, unsigned a1, unsigned b) {
  const unsigned a[4] = {a0, a1}, of_b[2] = {b};
  host_gpu::mma(host_gpu::Type::bf16, 8, d, a, of_b);
}

inline float max_nan(float a, float b) {
  return __builtin_isnan(a) || __builtin_isnan(b) ? __uint_as_float(0x7fffffff) : a > b ? a : b;
}
inline float min_nan(float a, float b) {
  return __builtin_isnan(a) || __builtin_isnan(b) ? __uint_as_float(0x7fffffff) : a < b ? a : b;
}
// Halves of both, by what numbers they are.
template <class Number>
inline unsigned larger_halves(unsigned a, unsigned b, const Number& number) {
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const unsigned short left = static_cast<unsigned short>(a >> shift),
                         right = static_cast<unsigned short>(b >> shift);
    const bool nan = __builtin_isnan(number(left)) || __builtin_isnan(number(right));
    result |= (nan ? 0x7fffu : number(left) > number(right) ? left : right) << shift;
  }
  return result;
}
inline unsigned max_nan_f16x2(unsigned a, unsigned b) {
  return larger_halves(a, b, host_gpu::half_to_float);
}
inline unsigned max_nan_bf16x2(unsigned a, unsigned b) {
  return larger_halves(
      a, b, [](unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); });
}

inline void bar_sync(unsigned id, unsigned threads) {
  host_gpu::barrier(id, threads, true, 0);
}

inline float ex2_approx(float exponent) {
  return exp2f(exponent);
}
inline float rcp_approx(float value) {
  return 1 / value;
}

inline unsigned cvt_rna_tf32(float value) {
  if (__builtin_isnan(value)) return 0x7fffffff;
  const unsigned bits = __float_as_uint(value);
  return __builtin_isinf(value) ? bits : (bits + 0x1000) & ~0x1fffu;
}
inline float cvt_f32_f16(unsigned bits) {
  return host_gpu::half_to_float(static_cast<unsigned short>(bits));
}
inline unsigned cvt_rn_f16x2(float low, float high) {
  return host_gpu::to_half(low) | static_cast<unsigned>(host_gpu::to_half(high)) << 16;
}
inline unsigned cvt_rn_bf16x2(float low, float high) {
  return host_gpu::to_bfloat(low) | static_cast<unsigned>(host_gpu::to_bfloat(high)) << 16;
}

}  // namespace convtune::ptx
