// How weight_gradient_half_sm90.cuh makes gradients of partial sums: those of a tile are added in the order
// of the blocks that left them, and rounded once. dw has the taps of a channel one behind the other, a tile
// has channels of one tap: they change their order in shared memory.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/load.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::weight_gradient_half_sm90 {

// A gradient in plain fp32, without padding: what is computed where a sum is no number, since tensor cores
// multiply the zeros of padding by what may be infinite. Once the sum is no number it stays so.
template <WeightGradientHalfSm90 config>
__device__ __noinline__ float exact_gradient(const void* __restrict__ x, const void* __restrict__ dy,
                                             int filter, int channel, int tap) {
  constexpr ConvExtents a = config.conv;
  const WeightGradientHalfSm90::Reach reach = config.reach(tap * config.channel_blocks());
  float sum = 0;
#pragma unroll 1
  for (int pixel = 0; pixel < config.all_pixels() && sum == sum; ++pixel) {
    const WeightGradientHalfSm90::Pixel first = config.first_tap(pixel);
    const int frame = first.frame + reach.frames, row = first.row + reach.rows,
              column = first.column + reach.columns;
    if (frame < 0 || frame >= a.d || row < 0 || row >= a.h || column < 0 || column >= a.w) continue;
    const float number = load_element<a.x_type>(x, a.input_offset(first.image, channel, frame, row, column));
    sum = fmaf(load_element<a.y_type>(dy, static_cast<long long>(pixel) * a.k + filter), number, sum);
  }
  return sum;
}

// Sums of so many floats that lie beside each other, from `offset` of the places of a tile on.
template <WeightGradientHalfSm90 config, int kCount>
__device__ __forceinline__ void add_places(float (&sums)[kCount], const float* __restrict__ partial, int tile,
                                           long long offset) {
  constexpr int kAtOnce = 8;  // places whose loads are under way
  const int last = config.last_sharer(tile);
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0;
#pragma unroll 1
  for (int first = config.first_sharer(tile); first <= last; first += kAtOnce) {
    float some[kAtOnce][kCount];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const float* const from =
          partial + config.place(lesser(first + j, last), tile) * config.place_words() + offset;
      if constexpr (kCount == 4) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        some[j][0] = four.x, some[j][1] = four.y, some[j][2] = four.z, some[j][3] = four.w;
      } else {
        some[j][0] = *from;
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (first + j <= last) sums[i] += some[j][i];
  }
}

template <WeightGradientHalfSm90 config>
__device__ void add_up(const void* __restrict__ x, const void* __restrict__ dy,
                       const float* __restrict__ partial, void* __restrict__ dw) {
  constexpr ConvExtents a = config.conv;
  constexpr int kFilters = config.added_filters(), kRun = config.run(), kBlock = config.kBlock;
  __shared__ float sums[kFilters * kRun];
  const int first_filter = static_cast<int>(blockIdx.x) / config.channel_blocks() * kFilters;
  const int channel_block = static_cast<int>(blockIdx.x) % config.channel_blocks();
  const int first_channel = channel_block * kBlock, channels = lesser(kBlock, a.c - first_channel);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kFilters * kRun / 4; i += config.kAddThreads) {
    const int of_filter = i / (kRun / 4), tap = i % (kRun / 4) / (kBlock / 4), channel = i % (kBlock / 4) * 4;
    const int filter = first_filter + of_filter, block = tap * config.channel_blocks() + channel_block;
    if (filter >= a.k || channel >= channels) continue;
    const int tile = filter / config.tile_rows() * config.column_tiles() + block / config.tile_blocks();
    const long long offset = 1LL * (filter % config.tile_rows()) * config.tile_columns() +
                             block % config.tile_blocks() * kBlock + channel;
    float four[4];
    add_places<config>(four, partial, tile, offset);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (four[j] != four[j] && channel + j < channels)
        four[j] = exact_gradient<config>(x, dy, filter, first_channel + channel + j, tap);
      sums[of_filter * kRun + (channel + j) * config.taps() + tap] = four[j];
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kFilters * kRun; i += config.kAddThreads) {
    const int filter = first_filter + i / kRun, place = i % kRun;
    if (filter < a.k && place < channels * config.taps())
      store_element<a.x_type>(dw, (1LL * filter * a.c + first_channel) * config.taps() + place, sums[i]);
  }
}

// The gradients of biases: a thread a filter.
template <WeightGradientHalfSm90 config>
__device__ void add_up_biases(const float* __restrict__ partial, void* __restrict__ dbias) {
  const int filter = static_cast<int>(blockIdx.x) * config.kAddThreads + static_cast<int>(threadIdx.x);
  if (filter >= config.conv.k || dbias == nullptr) return;
  float sum[1];
  add_places<config>(sum, partial, filter / config.tile_rows() * config.column_tiles(),
                     config.row_sums_at() + filter % config.tile_rows());
  store_element<config.conv.bias_type>(dbias, filter, sum[0]);
}

}  // namespace convtune::weight_gradient_half_sm90
