// Gradients of weights that blocks share: partial sums added up in the order of the blocks' ranks, rounded
// once and stored. Kernels multiply the zeros that stand for padding, and an infinity of the other factor
// makes NaN of them: a sum that is NaN is computed again from the products alone that there are.
#pragma once

#include "cuda/ptx/grid.cuh"
#include "cuda/tile/arithmetic.h"
#include "cuda/tile/element.cuh"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// Index in dw of a weight's gradient: its place among the weights, or that with channels last (`dw_last`).
template <ConvExtents a>
__device__ __forceinline__ long long place_of_gradient(long long weight, int dw_last) {
  if (dw_last == 0) return weight;
  const int taps = a.t * a.r * a.s, of_filter = a.group_channels() * taps;
  const long long filter = weight / of_filter;
  const int behind = static_cast<int>(weight % of_filter);
  return filter * of_filter + behind % taps * a.group_channels() + behind / taps;
}

// One thread's share of a weight's gradient: every so many-th product of those that there are, until their
// sum is NaN, which it stays.
template <auto config>
__device__ __forceinline__ float gradient_share(const void* __restrict__ x, const void* __restrict__ dy,
                                                long long weight, int share, int shares) {
  constexpr ConvExtents a = config.conv;
  constexpr int kTaps = a.t * a.r * a.s;
  const int filter = static_cast<int>(weight / a.taps()), tap = static_cast<int>(weight % kTaps);
  const int channel =
      filter / a.group_filters() * a.group_channels() + static_cast<int>(weight / kTaps % a.group_channels());
  const int behind = tap / (a.r * a.s) * a.dilation_d - a.pad_front;
  const int below = tap / a.s % a.r * a.dilation_h - a.pad_top, right = tap % a.s * a.dilation_w - a.pad_left;
  constexpr long long kAll = 1LL * a.n * a.z * a.p * a.q;
  float sum = 0;
#pragma unroll 1
  for (long long pixel = share; pixel < kAll && sum == sum; pixel += shares) {
    const int frame = static_cast<int>(pixel / (a.p * a.q)), of_frame = static_cast<int>(pixel % (a.p * a.q));
    const int image = frame / a.z, z = frame % a.z, p = of_frame / a.q, q = of_frame % a.q;
    const int depth = z * a.stride_d + behind, row = p * a.stride_h + below, column = q * a.stride_w + right;
    if (depth < 0 || depth >= a.d || row < 0 || row >= a.h || column < 0 || column >= a.w) continue;
    sum = fmaf(load_element<a.x_type>(x, a.input_offset(image, channel, depth, row, column)),
               load_element<a.y_type>(dy, a.output_offset(image, filter, z, p, q)), sum);
  }
  return sum;
}
template <auto config>
__device__ __noinline__ float exact_gradient_share(const void* __restrict__ x, const void* __restrict__ dy,
                                                   long long weight, int share, int shares) {
  return gradient_share<config>(x, dy, weight, share, shares);
}

// Four sums that kAdders threads share, kAddThreads / kAdders of them apart: the first has the whole, added
// in their order. All of a block call this; `parts` has room for its sums.
template <int kAdders>
__device__ __forceinline__ void add_adders(float (&four)[4], float* parts) {
  constexpr int kApart = kAddThreads / kAdders;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int j = 0; j < 4; ++j) parts[4 * thread + j] = four[j];
  __syncthreads();
  if (thread < kApart)
#pragma unroll
    for (int other = 1; other < kAdders; ++other)
#pragma unroll
      for (int j = 0; j < 4; ++j) four[j] += parts[4 * (other * kApart + thread) + j];
  __syncthreads();  // nobody reads the parts any more
}

// Stores a thread's gradient: of a weight by its place among all, behind these of a bias, below 0 none. All
// kThreads threads of a block call this, and compute together what is NaN. `dw_last`: 1 where dw lies
// channels last.
template <auto config, ElementType kType, int kThreads>
__device__ __forceinline__ void store_gradient(const void* __restrict__ x, const void* __restrict__ dy,
                                               void* __restrict__ dw, void* __restrict__ dbias,
                                               long long weight, float sum, int dw_last = 0) {
  constexpr ConvExtents a = config.conv;
  __shared__ float shares[kThreads];
  __shared__ long long wanted;
  const int thread = static_cast<int>(threadIdx.x);
  const bool of_bias = weight >= a.weights(), again = weight >= 0 && !of_bias && sum != sum;
  if (of_bias && dbias != nullptr) store_element<a.bias_type>(dbias, weight - a.weights(), sum);
  if (weight >= 0 && !of_bias && !again) store_element<kType>(dw, place_of_gradient<a>(weight, dw_last), sum);
  if (!__syncthreads_or(again)) return;
#pragma unroll 1
  for (int i = 0; i < kThreads; ++i) {
    if (thread == i) wanted = again ? weight : -1;
    __syncthreads();
    const long long now = wanted;
    __syncthreads();
    if (now < 0) continue;
    shares[thread] = exact_gradient_share<config>(x, dy, now, thread, kThreads);
    // In halves, always in the same order.
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half) shares[thread] += shares[thread + half];
    }
    if (thread == 0) store_element<kType>(dw, place_of_gradient<a>(now, dw_last), shares[0]);
    __syncthreads();
  }
}

// Adds up what `split` blocks left, [rank][rank_fours() of 4 floats], of which weight_of(four, i) says what
// they are. A block has added_fours(); a thread adds every so many-th rank's sums of one of them.
template <auto config>
__device__ __forceinline__ void add_up_ranks(const float* __restrict__ partial, const void* __restrict__ x,
                                             const void* __restrict__ dy, void* __restrict__ dw,
                                             void* __restrict__ dbias, int dw_last = 0) {
  constexpr int kFours = added_fours(config.split), kRanks = kAddThreads / kFours;
  __shared__ float shares[4 * kAddThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int of_block = thread % kFours, share = thread / kFours;
  const long long four = static_cast<long long>(blockIdx.x) * kFours + of_block;
  const bool real = four < config.rank_fours();
  float sums[4] = {0, 0, 0, 0};
  if (real) {
#pragma unroll 8
    for (int rank = share; rank < config.split; rank += kRanks) {
      const float4 more = reinterpret_cast<const float4*>(partial)[rank * config.rank_fours() + four];
      sums[0] += more.x, sums[1] += more.y, sums[2] += more.z, sums[3] += more.w;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) shares[i * kAddThreads + thread] = sums[i];
  __syncthreads();
  // The first four shares of threads have a number each.
  long long weight = -1;
  float sum = 0;
  if (share < 4 && real) {
#pragma unroll
    for (int i = 0; i < kRanks; ++i) sum += shares[share * kAddThreads + i * kFours + of_block];
    weight = config.weight_of(four, share);
  }
  store_gradient<config, config.w_type, kAddThreads>(x, dy, dw, dbias, weight, sum, dw_last);
}

}  // namespace convtune
