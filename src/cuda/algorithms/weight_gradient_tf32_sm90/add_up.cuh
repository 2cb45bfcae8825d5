// How weight_gradient_tf32_sm90.cuh makes gradients of partial sums: those of a tile are added in the order
// of the ranks, and stored in dw's order, for which they go through shared memory.
#pragma once

#include "cuda/algorithms/weight_gradient_tf32_sm90/config.h"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_tf32_sm90 {

// Four sums of ranks, from `from` on, `step` floats apart.
__device__ __forceinline__ void add_ranks(float (&sums)[4], const float* __restrict__ from, long long step,
                                          int begin, int end) {
#pragma unroll 8
  for (int rank = begin; rank < end; ++rank) {
    const float4 more = *reinterpret_cast<const float4*>(from + rank * step);
    sums[0] += more.x, sums[1] += more.y, sums[2] += more.z, sums[3] += more.w;
  }
}

template <WeightGradientTf32Sm90 config>
__device__ void add_up(const float* __restrict__ partial, const void* __restrict__ x,
                       const void* __restrict__ dy, void* __restrict__ dw) {
  constexpr ConvExtents a = config.conv;
  constexpr int kFilters = config.added_filters(), kChannels = config.added_channels();
  constexpr int kTaps = config.taps(), kRun = kChannels * kTaps, kAll = kFilters * kRun;
  constexpr int kAdders = config.adders(), kAtOnce = kAddThreads / kAdders;
  constexpr int kParts = config.tile_channels() / kChannels, kFilterParts = config.tile_rows() / kFilters;
  constexpr int kPartWords = kAdders > 1 ? 4 * kAddThreads : 0;
  __shared__ float parts[kPartWords + kAll];
  float* const sums = parts + kPartWords;
  const int block = static_cast<int>(blockIdx.x);
  const int tile = block / (kParts * kFilterParts), row = block / kParts % kFilterParts * kFilters;
  const int channel_at = block % kParts * kChannels;  // channels of the tile before this block's
  const int first_filter = tile / config.column_tiles() * config.tile_rows() + row;
  const int first_channel = tile % config.column_tiles() * config.tile_channels() + channel_at;
  const int thread = static_cast<int>(threadIdx.x), adder = thread / kAtOnce, mine = thread % kAtOnce;
  const float* const from = partial + tile * config.tile_words();
#pragma unroll 1
  for (int first = 0; first < kAll / 4; first += kAtOnce) {
    const int i = first + mine, of_filter = i / (kRun / 4), tap = i % (kRun / 4) / (kChannels / 4);
    const int channel = i % (kChannels / 4) * 4;
    const bool real = i < kAll / 4;
    float four[4] = {};
    if (real)
      add_ranks(four,
                from + 1LL * (row + of_filter) * config.tile_columns() +
                    config.column_of(tap, channel_at + channel),
                config.tile_words() * config.tiles(), config.split * adder / kAdders,
                config.split * (adder + 1) / kAdders);
    if constexpr (kAdders > 1) add_adders<kAdders>(four, parts);
    if (real && adder == 0)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[of_filter * kRun + (channel + j) * kTaps + tap] = four[j];
  }
  __syncthreads();
#pragma unroll 1
  for (int first = 0; first < kAll; first += kAddThreads) {
    const int i = first + thread, filter = first_filter + i / kRun,
              channel = first_channel + i % kRun / kTaps;
    const bool real = i < kAll && filter < a.k && channel < a.c;
    store_gradient<config, config.w_type, kAddThreads>(
        x, dy, dw, nullptr, real ? (1LL * filter * a.c + channel) * kTaps + i % kTaps : -1,
        real ? sums[i] : 0);
  }
}

// Gradients of biases: some threads a filter, each with a share of what ranks and warps have left.
template <WeightGradientTf32Sm90 config>
__device__ void add_up_biases(const float* __restrict__ partial, void* __restrict__ dbias) {
  constexpr int kFilters = config.kBiasFilters, kShares = kAddThreads / kFilters;
  constexpr int kWarps = config.transposing_warps(), kAll = config.split * kWarps;
  __shared__ float shares[kAddThreads];
  const int thread = static_cast<int>(threadIdx.x), share = thread / kFilters;
  const int filter = static_cast<int>(blockIdx.x) * kFilters + thread % kFilters;
  const float* const from = partial + config.biases_at() +
                            filter / config.tile_rows() * (kWarps * config.tile_rows()) +
                            filter % config.tile_rows();
  float sum = 0;
  if (filter < config.conv.k)
#pragma unroll 8
    for (int i = kAll * share / kShares; i < kAll * (share + 1) / kShares; ++i)
      sum += from[i / kWarps * config.bias_words() + i % kWarps * config.tile_rows()];
  shares[thread] = sum;
  __syncthreads();
  if (share > 0 || filter >= config.conv.k || dbias == nullptr) return;
#pragma unroll
  for (int i = 1; i < kShares; ++i) sum += shares[i * kFilters + thread];
  store_element<config.conv.bias_type>(dbias, filter, sum);
}

}  // namespace convtune::weight_gradient_tf32_sm90
