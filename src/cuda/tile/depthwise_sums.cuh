// Gradients of depthwise weights that blocks share: their sums added up in the order of the blocks' ranks,
// and stored. Those that are NaN are computed again, since kernels multiply zeros for padding.
#pragma once

#include "cuda/tile/conv_extents.h"
#include "cuda/tile/element.cuh"

namespace convtune {

// One thread's share of a sum: every so many-th product of those that there are.
template <auto config>
__device__ __noinline__ float exact_gradient_share(const void* __restrict__ x, const void* __restrict__ dy,
                                                   int channel, int tap, int share, int shares) {
  constexpr ConvExtents a = config.conv;
  const int below = tap / a.s * a.dilation_h - a.pad_top, right = tap % a.s * a.dilation_w - a.pad_left;
  const long long all = static_cast<long long>(a.n) * (a.p * a.q);
  float sum = 0;
#pragma unroll 1
  for (long long pixel = share; pixel < all; pixel += shares) {
    const int image = static_cast<int>(pixel / (a.p * a.q)), of_image = static_cast<int>(pixel % (a.p * a.q));
    const int p = of_image / a.q, q = of_image % a.q;
    const int row = p * a.stride_h + below, column = q * a.stride_w + right;
    if (row < 0 || row >= a.h || column < 0 || column >= a.w) continue;
    sum = fmaf(load_element<a.x_type>(x, a.input_offset(image, channel, row, column)),
               load_element<a.x_type>(dy, a.output_offset(image, channel, p, q)), sum);
  }
  return sum;
}

// A block has kAdded channels of one tap, or of the bias: of `partial`, [rank][tap][channel]. A thread adds
// every kRanks-th rank's sum of a channel. `shares`: a float a thread.
template <auto config>
__device__ __forceinline__ void add_up_depthwise(const float* __restrict__ partial,
                                                 const void* __restrict__ x, const void* __restrict__ dy,
                                                 void* __restrict__ dw, void* __restrict__ dbias,
                                                 float* shares) {
  constexpr ConvExtents a = config.conv;
  constexpr int kAdded = config.kAdded, kRanks = config.kRanks;
  const int of_block = static_cast<int>(threadIdx.x) % kAdded, share = static_cast<int>(threadIdx.x) / kAdded;
  const int first = static_cast<int>(blockIdx.x) % config.add_chunks() * kAdded;
  const int tap = static_cast<int>(blockIdx.x) / config.add_chunks(), channel = first + of_block;
  const bool of_bias = tap == config.taps();
  if (of_bias && dbias == nullptr) return;
  float sum = 0;
  if (channel < a.c) {
    const float* const from = partial + tap * config.all_channels() + channel;
#pragma unroll 8
    for (int rank = share; rank < config.split; rank += kRanks)
      sum += from[static_cast<long long>(rank) * config.rank_words()];
  }
  shares[threadIdx.x] = sum;
  __syncthreads();
  sum = shares[of_block];
#pragma unroll
  for (int i = 1; i < kRanks; ++i) sum += shares[i * kAdded + of_block];
  const bool is_nan = share == 0 && channel < a.c && sum != sum;
  if (share == 0 && channel < a.c && (of_bias || !is_nan)) {
    if (of_bias)
      store_element<a.bias_type>(dbias, channel, sum);
    else
      store_element<config.w_type>(dw, 1LL * channel * config.taps() + tap, sum);
  }
  if (!__syncthreads_or(is_nan && !of_bias)) return;
#pragma unroll 1
  for (int i = 0; i < kAdded && first + i < a.c; ++i) {
    if (!__syncthreads_or(is_nan && of_block == i)) continue;
    shares[threadIdx.x] = exact_gradient_share<config>(x, dy, first + i, tap, static_cast<int>(threadIdx.x),
                                                       config.kAddThreads);
    // In halves, always in the same order.
    for (int half = config.kAddThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < half) shares[threadIdx.x] += shares[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
      store_element<config.w_type>(dw, 1LL * (first + i) * config.taps() + tap, shares[0]);
    __syncthreads();
  }
}

}  // namespace convtune
