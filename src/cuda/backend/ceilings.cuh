// Matrix products and nothing else, for measuring how fast this GPU multiplies. Operands are random, since
// zeros take less power and run faster than any real data.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune {

__device__ inline unsigned random_bits(unsigned lane, unsigned index) {
  unsigned bits = (lane * 64 + index + 1) * 0x9E3779B9u;
  bits = (bits ^ (bits >> 15)) * 0x85EBCA6Bu;
  return bits ^ (bits >> 13);
}

// What is multiplied, as a register holds it: a number in [-1, 1), or two of a magnitude in [0.5, 1).
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
struct Fp16 {
  static __device__ unsigned random(unsigned lane, unsigned index) {
    return (random_bits(lane, index) & 0x83FF83FFu) | 0x38003800u;
  }
  static __device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    ptx::mma_m16n8k16_f16(d, a, b);
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

// Each warp: `rounds` times 8 products of 16x8x8 (Fp16: 16x8x16), on sums of their own too.
// Compute capability 9.0 has faster instructions (below), 10.0 too (tcgen05, which no kernel here uses yet).
template <class Type>
__global__ void __launch_bounds__(256) mma_products(float* results, int rounds) {
  constexpr int kChains = 8;
  const unsigned lane = threadIdx.x;
  unsigned a[4], b[kChains][2];
  float d[kChains][4] = {};
  for (unsigned i = 0; i < 4; ++i) a[i] = Type::random(lane, i);
#pragma unroll
  for (unsigned i = 0; i < kChains; ++i) {
    b[i][0] = Type::random(lane, 8 + 2 * i);
    b[i][1] = Type::random(lane, 9 + 2 * i);
  }
#pragma unroll 4
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) Type::mma(d[i], a, b[i]);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  results[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

#define CONVTUNE_8(i)                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])

// d += a * b by one warpgroup: 64x128x8 (f16: 64x128x16), a in registers, b in shared memory.
#define CONVTUNE_WGMMA(shape_and_types, transpose)                                                 \
  asm volatile("wgmma.mma_async.sync.aligned." shape_and_types                                     \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, " \
               "{%64, %65, %66, %67}, %68, 1, 1, 1" transpose ";"                                  \
               : CONVTUNE_8(0), CONVTUNE_8(8), CONVTUNE_8(16), CONVTUNE_8(24), CONVTUNE_8(32),     \
                 CONVTUNE_8(40), CONVTUNE_8(48), CONVTUNE_8(56)                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
__device__ inline void wgmma(Tf32, float (&d)[64], const unsigned (&a)[4], unsigned long long b) {
  CONVTUNE_WGMMA("m64n128k8.f32.tf32.tf32", "");
}
__device__ inline void wgmma(Fp16, float (&d)[64], const unsigned (&a)[4], unsigned long long b) {
  CONVTUNE_WGMMA("m64n128k16.f32.f16.f16", ", 0");
}
#undef CONVTUNE_WGMMA
#undef CONVTUNE_8

// Each warpgroup (a block): `rounds` times 16 products of 64 columns by 128 on one sum, in the order in which
// the tensor cores take them; the other blocks of the multiprocessor fill the wait at the end of a round.
template <class Type>
__global__ void __launch_bounds__(128) wgmma_products(float* results, int rounds) {
  constexpr int kWords = 128 * 8;
  __shared__ __align__(128) unsigned b[kWords];
  for (unsigned i = threadIdx.x; i < kWords; i += 128) b[i] = Type::random(i, 5);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  // Core matrices of 8 rows of 16 bytes, no swizzle: the next one along k 128 bytes on, along n 256.
  const unsigned long long descriptor =
      (ptx::shared_address(b) & 0x3ffff) >> 4 | 128ull >> 4 << 16 | 256ull >> 4 << 32;
  unsigned a[4];
  for (unsigned i = 0; i < 4; ++i) a[i] = Type::random(threadIdx.x, i);
  float d[64] = {};
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 16; ++i) wgmma(Type(), d, a, descriptor);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += d[i];
  results[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace convtune
