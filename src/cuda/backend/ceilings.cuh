// Matrix products and nothing else, for measuring how fast this GPU multiplies. Operands are random, and
// others in each product: zeros, and the same numbers again, take less power and run faster than any real
// data. (On an H200 products of one pair of operands over and over ran at 924 TFLOP/s, a library's matrix
// product at 749.)
#pragma once

#include "cuda/ptx/sm80.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/ptx/wgmma_half_shared.cuh"
#include "cuda/ptx/wgmma_tf32.cuh"
#endif

namespace convtune {

__device__ inline unsigned random_bits(unsigned lane, unsigned index) {
  unsigned bits = (lane * 64 + index + 1) * 0x9E3779B9u;
  bits = (bits ^ (bits >> 15)) * 0x85EBCA6Bu;
  return bits ^ (bits >> 13);
}

// Gives a register of operands to multiply: a number in [-1, 1), or two.
struct Fp32 {
  static __device__ float random(unsigned lane, unsigned index) {
    return static_cast<float>(static_cast<int>(random_bits(lane, index))) * 0x1p-31f;
  }
};
struct Tf32 {
  static __device__ unsigned random(unsigned lane, unsigned index) {
    return ptx::cvt_rna_tf32(Fp32::random(lane, index));
  }
  static __device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k8_tf32(d, a, b);
  }
};
struct Bf16 {
  static __device__ unsigned random(unsigned lane, unsigned index) {
    return ptx::cvt_rn_bf16x2(Fp32::random(lane, index), Fp32::random(lane, index + 32));
  }
  static __device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_bf16(d, a, b);
  }
};

// Each thread: `rounds` times 32 multiply-adds without tensor cores, on 16 sums of their own so that none
// waits for another.
__global__ void __launch_bounds__(256) fma_products(float* results, int rounds) {
  constexpr int kChains = 16;
  const float a = Fp32::random(threadIdx.x, 0), b = Fp32::random(threadIdx.x, 1);
  float d[kChains];
#pragma unroll
  for (unsigned i = 0; i < kChains; ++i) d[i] = Fp32::random(threadIdx.x, 2 + i);
#pragma unroll 4
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < 2 * kChains; ++i) d[i % kChains] = fmaf(d[i % kChains], a, b);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += d[i];
  results[blockIdx.x * blockDim.x + threadIdx.x] = sum;  // or all of it would be left out
}

// Each warp: `rounds` times 8 products of 16x8x8 (Bf16: 16x8x16), on sums of their own too.
// Compute capability 9.0 has faster instructions (below), 10.0 too (tcgen05, which no kernel here uses yet).
template <class Type>
__global__ void __launch_bounds__(256) mma_products(float* results, int rounds) {
  constexpr int kChains = 8;
  const unsigned lane = threadIdx.x;
  unsigned a[2][4], b[kChains][2];
  float d[kChains][4] = {};
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) a[i / 4][i % 4] = Type::random(lane, i);
#pragma unroll
  for (unsigned i = 0; i < kChains; ++i) {
    b[i][0] = Type::random(lane, 8 + 2 * i);
    b[i][1] = Type::random(lane, 9 + 2 * i);
  }
#pragma unroll 4
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) Type::mma(d[i], a[i % 2], b[i]);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  results[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// 64x256x8, and 64x256x16.
template <class Type>
struct Wgmma : ptx::WgmmaTf32<256> {};
template <>
struct Wgmma<Bf16> : ptx::WgmmaHalfShared<true, 256> {};

// Each warpgroup (a block): `rounds` times 16 products on one sum, in the order in which the tensor cores
// take them; the other blocks of the SM fill the wait at the end of a round. Operands are neighbours in
// shared memory.
template <class Type>
__global__ void __launch_bounds__(128) wgmma_products(float* results, int rounds) {
  constexpr int kSlots = 4, kRowWords = 8, kA = 64 * kRowWords, kB = 256 * kRowWords;
  __shared__ __align__(128) unsigned a[kSlots * kA], b[kSlots * kB];
  for (unsigned i = threadIdx.x; i < kSlots * kA; i += 128) a[i] = Type::random(i, 5);
  for (unsigned i = threadIdx.x; i < kSlots * kB; i += 128) b[i] = Type::random(i, 6);
  ptx::fence_proxy_async();
  __syncthreads();
  const auto operand = [](const unsigned* words) {
    return ptx::wgmma_descriptor(ptx::shared_address(words) / 16, 8, 16);
  };
  float d[128] = {};
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 16; ++i)
      Wgmma<Type>::multiply(d, operand(a + i % kSlots * kA), operand(b + i / kSlots % kSlots * kB), true);
    ptx::wgmma_commit_and_wait();
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += d[i];
  results[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace convtune
