// How weight_gradient_sm80.cuh adds up the sums of all blocks, in the order of their ranks, and stores what
// they come to.
#pragma once

#include "cuda/algorithms/weight_gradient_sm80/config.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::weight_gradient_sm80 {

// One thread's share of a gradient: every so many-th product of those that there are; or of the bias's.
template <WeightGradientSm80 config>
__device__ __noinline__ float exact_share(const unsigned short* __restrict__ x,
                                          const unsigned short* __restrict__ dy, long long weight, int share,
                                          int shares) {
  constexpr ConvExtents a = config.conv;
  const bool of_bias = weight >= a.weights();
  const int tap = static_cast<int>(weight % (a.r * a.s)),
            of_group = static_cast<int>(weight / (a.r * a.s) % a.group_channels());
  const int filter =
      static_cast<int>(of_bias ? weight - a.weights() : weight / (a.r * a.s) / a.group_channels());
  const int channel = filter / a.group_filters() * a.group_channels() + of_group;
  const int below = tap / a.s * a.dilation_h - a.pad_top, right = tap % a.s * a.dilation_w - a.pad_left;
  const long long all = static_cast<long long>(a.n) * (a.p * a.q);
  float sum = 0;
#pragma unroll 1
  for (long long pixel = share; pixel < all; pixel += shares) {
    const int image = static_cast<int>(pixel / (a.p * a.q)), of_image = static_cast<int>(pixel % (a.p * a.q));
    const int p = of_image / a.q, q = of_image % a.q;
    const float by = load_element<a.x_type>(dy, a.output_offset(image, filter, p, q));
    const int row = p * a.stride_h + below, column = q * a.stride_w + right;
    if (of_bias)
      sum += by;
    else if (row >= 0 && row < a.h && column >= 0 && column < a.w)
      sum = fmaf(load_element<a.x_type>(x, a.input_offset(image, channel, row, column)), by, sum);
  }
  return sum;
}

template <WeightGradientSm80 config>
__device__ __forceinline__ void store_gradient(void* __restrict__ dw, void* __restrict__ dbias,
                                               long long weight, float sum) {
  constexpr ConvExtents a = config.conv;
  if (weight < a.weights())
    store_element<config.w_type>(dw, weight, sum);
  else if (dbias != nullptr)
    store_element<a.bias_type>(dbias, weight - a.weights(), sum);
}

// A block: kAdded fours. A thread adds every kRanks-th rank's sums of one of them.
template <WeightGradientSm80 config>
__global__ void __launch_bounds__(config.kAddThreads)
    add_up_weight_gradient_sm80(const float4* __restrict__ partial, const void* __restrict__ x,
                                const void* __restrict__ dy, void* __restrict__ dw,
                                void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  extern __shared__ __align__(16) float shares[];
  constexpr int kAdded = config.kAdded, kRanks = config.kRanks, kThreads = config.kAddThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const int of_block = thread % kAdded, share = thread / kAdded;
  const long long four = static_cast<long long>(blockIdx.x) * kAdded + of_block;
  float sums[4] = {0, 0, 0, 0};
  if (four < config.rank_fours()) {
#pragma unroll 4
    for (int rank = share; rank < config.split; rank += kRanks) {
      const float4 more = partial[rank * config.rank_fours() + four];
      sums[0] += more.x, sums[1] += more.y, sums[2] += more.z, sums[3] += more.w;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) shares[i * kThreads + thread] = sums[i];
  __syncthreads();
  // The first four sixteens of threads have a number each.
  const int number = share;
  long long weight = -1;
  float sum = 0;
  if (number < 4 && four < config.rank_fours()) {
#pragma unroll
    for (int i = 0; i < kRanks; ++i) sum += shares[number * kThreads + i * kAdded + of_block];
    const int of_chunk = static_cast<int>(four % config.chunk_fours());
    weight = config.weight_of(static_cast<int>(four / config.chunk_fours()), of_chunk % config.threads(),
                              of_chunk / config.threads(), number);
  }
  const bool is_nan = weight >= 0 && sum != sum;
  if (weight >= 0 && !is_nan) store_gradient<config>(dw, dbias, weight, sum);
  if (!__syncthreads_or(is_nan)) return;
  // Zeros were multiplied by what is not finite, or it is NaN.
  auto* const again = reinterpret_cast<long long*>(shares + 4 * kThreads);
#pragma unroll 1
  for (int i = 0; i < 4 * kAdded; ++i) {
    if (thread == i) *again = is_nan ? weight : -1;
    __syncthreads();
    const long long wanted = *again;
    __syncthreads();
    if (wanted < 0) continue;
    shares[thread] = exact_share<config>(static_cast<const unsigned short*>(x),
                                         static_cast<const unsigned short*>(dy), wanted, thread, kThreads);
    // In halves, always in the same order.
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half) shares[thread] += shares[thread + half];
    }
    if (thread == 0) store_gradient<config>(dw, dbias, wanted, shares[0]);
    __syncthreads();
  }
}

}  // namespace convtune::weight_gradient_sm80
