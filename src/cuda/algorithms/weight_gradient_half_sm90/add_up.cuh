// How weight_gradient_half_sm90.cuh makes gradients of partial sums: those of a tile are added in the order
// of the blocks that left them, and rounded once. Weights have the taps of a channel one behind the other, a
// tile has channels of one tap: they change their order in shared memory, and back where dw lies channels
// last.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/load.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_half_sm90 {

// Sums of so many floats that lie beside each other, from `from` on in the first of a tile's places: the part
// `adder` of all places, which are dealt out to `adders` one after the other.
template <WeightGradientHalfSm90 config, int kCount>
__device__ __forceinline__ void add_places(float (&sums)[kCount], const float* __restrict__ from, int places,
                                           int adder = 0, int adders = 1) {
  constexpr int kAtOnce = config.places_at_once();  // places whose loads are under way
  constexpr bool kOnce = config.most_sharers() <= kAtOnce;
  constexpr long long kStep = config.place_words();
  const int begin = places * adder / adders, end = places * (adder + 1) / adders;
  from += begin * kStep;
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = 0;
#pragma unroll 1
  for (int left = end - begin; left > 0; left -= kAtOnce, from += kAtOnce * kStep) {
    float some[kAtOnce][kCount];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (j >= left) continue;
      if constexpr (kCount == 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + j * kStep);
        some[j][0] = four.x, some[j][1] = four.y, some[j][2] = four.z, some[j][3] = four.w;
      } else {
        some[j][0] = from[j * kStep];
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (j < left) sums[i] += some[j][i];
    if constexpr (kOnce) break;
  }
}

// Stores gradients of a block's filters in the order of weights, each a run of all taps of `channels`
// channels, by eights; tells whether one of them is NaN.
template <WeightGradientHalfSm90 config, int kRun, int kFilters>
__device__ __forceinline__ bool store_runs(const float* sums, void* __restrict__ dw, int first_filter,
                                           int end_filter, int first_channel, int channels) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = kRun / 8;
  bool is_nan = false;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < kFilters * kPieces; i += kAddThreads) {
    const int of_filter = i / kPieces, piece = i % kPieces;
    if (first_filter + of_filter >= end_filter || 8 * piece >= channels * config.taps()) continue;
    float eight[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 four = reinterpret_cast<const float4*>(sums)[2 * i + half];
      eight[4 * half] = four.x, eight[4 * half + 1] = four.y;
      eight[4 * half + 2] = four.z, eight[4 * half + 3] = four.w;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) is_nan = is_nan || eight[j] != eight[j];
    const long long weight =
        (1LL * (first_filter + of_filter) * a.c + first_channel) * config.taps() + 8 * piece;
    *reinterpret_cast<uint4*>(static_cast<unsigned short*>(dw) + weight) = {
        pack_halves<a.x_type>(eight[0], eight[1]), pack_halves<a.x_type>(eight[2], eight[3]),
        pack_halves<a.x_type>(eight[4], eight[5]), pack_halves<a.x_type>(eight[6], eight[7])};
  }
  return is_nan;
}

// Stores them channels last: eight channels of a tap of a filter at a time.
template <WeightGradientHalfSm90 config, int kRun, int kFilters>
__device__ __forceinline__ bool store_taps(const float* sums, void* __restrict__ dw, int first_filter,
                                           int end_filter, int first_channel, int channels, int first_tap,
                                           int taps) {
  constexpr ConvExtents a = config.conv;
  constexpr int kTaps = config.added_taps(), kPieces = kRun / 8, kEights = kPieces / kTaps;
  bool is_nan = false;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kFilters * kPieces; i += kAddThreads) {
    const int of_filter = i / kPieces, tap = i % kPieces / kEights, channel = i % kEights * 8;
    if (first_filter + of_filter >= end_filter || tap >= taps || channel >= channels) continue;
    float eight[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      eight[j] = sums[of_filter * kRun + (channel + j) * kTaps + tap];
      is_nan = is_nan || eight[j] != eight[j];
    }
    const long long place =
        (1LL * (first_filter + of_filter) * config.taps() + first_tap + tap) * a.c + first_channel + channel;
    if constexpr (config.aligned) {
      *reinterpret_cast<uint4*>(static_cast<unsigned short*>(dw) + place) = {
          pack_halves<a.x_type>(eight[0], eight[1]), pack_halves<a.x_type>(eight[2], eight[3]),
          pack_halves<a.x_type>(eight[4], eight[5]), pack_halves<a.x_type>(eight[6], eight[7])};
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) store_element<a.x_type>(dw, place + j, eight[j]);
    }
  }
  return is_nan;
}

template <WeightGradientHalfSm90 config>
__device__ void add_up(const void* __restrict__ x, const void* __restrict__ dy,
                       const float* __restrict__ partial, void* __restrict__ dw, int dw_last) {
  constexpr ConvExtents a = config.conv;
  constexpr int kFilters = config.added_filters(), kTaps = config.added_taps();
  constexpr int kAdders = config.adders(), kAtOnce = kAddThreads / kAdders;
  constexpr int kBlock = config.block_channels(), kRun = kBlock * kTaps, kAll = kFilters * kRun;
  // Sums, shares of adders, and of each tap where its columns begin in the first of their tile's places, and
  // how many places there are.
  constexpr int kParts = kAdders > 1 ? 4 * kAddThreads : 0, kWords = kAll + kParts + 3 * kTaps;
  __shared__ __align__(16) float memory[kWords];
  float* const sums = memory;
  float* const parts = memory + kAll;
  auto* const begins = reinterpret_cast<long long*>(memory + kAll + kParts);
  auto* const counts = reinterpret_cast<int*>(begins + kTaps);
  // A tile's filters; or, of parts of tiles alone, all filters and channels.
  const int block = static_cast<int>(blockIdx.x) / config.tap_blocks();
  int end_filter = a.k;
  const int first_tap = static_cast<int>(blockIdx.x) % config.tap_blocks() * kTaps;
  const int taps = lesser(kTaps, config.taps() - first_tap);
  int first_filter = block / config.channel_blocks() * kFilters;
  int channel_block = block % config.channel_blocks();
  if constexpr (config.whole > 0) {
    const int tile = config.whole + block / config.tile_filters();
    first_filter = config.first_filter(tile) + block % config.tile_filters() * kFilters;
    end_filter = lesser(config.first_filter(tile) + config.tile_rows(), a.k);
    channel_block = tile % config.channel_blocks();
  }
  const int first_channel = channel_block * kBlock, channels = lesser(kBlock, a.c - first_channel);
  const int adder = static_cast<int>(threadIdx.x) / kAtOnce, mine = static_cast<int>(threadIdx.x) % kAtOnce;
  static_assert(config.kBlock % kFilters == 0, "a block's filters are of one tile");
  for (int i = static_cast<int>(threadIdx.x); i < taps; i += kAddThreads) {
    const int tap = first_tap + i, tile = config.tile_of(first_filter, tap, channel_block);
    const int first = config.first_sharer(tile);
    begins[i] =
        config.place(first, tile) * config.place_words() +
        config.sum_at(first_filter % config.tile_rows(), config.block_in_tile(tap, channel_block) * kBlock);
    counts[i] = config.last_sharer(tile) + 1 - first;
  }
  __syncthreads();
  const auto each = [&](int first, auto&& with) {  // four gradients of this thread's, if there are
    const int i = first + mine;
    const int of_filter = i / 2 % kFilters, eight = i / 2 / kFilters;
    const int tap = eight / (kBlock / 8), channel = eight % (kBlock / 8) * 8 + i % 2 * 4;
    if (i < kAll / 4 && first_filter + of_filter < end_filter && channel < channels && tap < taps)
      with(of_filter, tap, channel);
  };
  const auto add = [&](float(&four)[4], int first) {
    each(first, [&](int of_filter, int tap, int channel) {
      add_places<config>(four, partial + begins[tap] + config.sum_at(of_filter, channel), counts[tap], adder,
                         kAdders);
    });
  };
  const auto put = [&](const float(&four)[4], int first) {
    each(first, [&](int of_filter, int tap, int channel) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[of_filter * kRun + (channel + j) * kTaps + tap] = four[j];
    });
  };
  if constexpr (kAdders > 1) {  // all loads come before the first barrier
    constexpr int kTurns = ceil_div(kAll / 4, kAtOnce);
    float fours[kTurns][4] = {};
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) add(fours[turn], turn * kAtOnce);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      add_adders<kAdders>(fours[turn], parts);
      if (adder == 0) put(fours[turn], turn * kAtOnce);
    }
  } else {
#pragma unroll 4
    for (int first = 0; first < kAll / 4; first += kAtOnce) {
      float four[4] = {};
      add(four, first);
      put(four, first);
    }
  }
  __syncthreads();
  const auto weight_of = [&](int i) {  // the place in dw of sum i's weight; -1: none
    const int filter = first_filter + i / kRun, channel = i % kRun / kTaps, tap = i % kTaps;
    const bool real = i < kAll && filter < end_filter && channel < channels && tap < taps;
    return real ? (1LL * filter * a.c + first_channel + channel) * config.taps() + first_tap + tap : -1;
  };
  bool is_nan = false;
  if (config.whole == 0 && dw_last != 0) {
    is_nan = store_taps<config, kRun, kFilters>(sums, dw, first_filter, end_filter, first_channel, channels,
                                                first_tap, taps);
  } else if constexpr (config.aligned && kTaps == config.taps()) {
    is_nan = store_runs<config, kRun, kFilters>(sums, dw, first_filter, end_filter, first_channel, channels);
  } else {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kAll; i += kAddThreads)
      if (const long long weight = weight_of(i); weight >= 0) {
        store_element<a.x_type>(dw, weight, sums[i]);
        is_nan = is_nan || sums[i] != sums[i];
      }
  }
  if (!__syncthreads_or(is_nan)) return;
#pragma unroll 1
  for (int first = 0; first < kAll; first += kAddThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const long long weight = weight_of(i);
    const float sum = weight >= 0 ? sums[i] : 0;
    store_gradient<config, a.x_type, kAddThreads>(x, dy, dw, nullptr, sum != sum ? weight : -1, sum, dw_last);
  }
}

// The gradients of biases: a thread a filter.
template <WeightGradientHalfSm90 config>
__device__ void add_up_biases(const float* __restrict__ partial, void* __restrict__ dbias) {
  const int filter = static_cast<int>(blockIdx.x) * kAddThreads + static_cast<int>(threadIdx.x);
  const int tile = filter / config.tile_rows() * config.column_tiles();
  if (filter >= config.conv.k || tile < config.whole || dbias == nullptr) return;
  const int first = config.first_sharer(tile);
  float sum[1];
  add_places<config>(sum,
                     partial + config.place(first, tile) * config.place_words() + config.row_sums_at() +
                         filter % config.tile_rows(),
                     config.last_sharer(tile) + 1 - first);
  store_element<config.conv.bias_type>(dbias, filter, sum[0]);
}

// Gradients of whole tiles that are NaN, computed again.
template <WeightGradientHalfSm90 config>
__device__ void check_whole(const float* __restrict__ partial, const void* __restrict__ x,
                            const void* __restrict__ dy, void* __restrict__ dw) {
  constexpr ConvExtents a = config.conv;
  constexpr int kRun = config.block_channels() * config.window_taps(), kAll = config.tile_rows() * kRun;
  const int thread = static_cast<int>(threadIdx.x), flags = config.tile_flags();
  const int first_tile = static_cast<int>(blockIdx.x - config.add_blocks()) * config.checked_tiles();
  const int tiles = lesser(config.checked_tiles(), config.whole - first_tile);
  const bool mine =
      thread < tiles * flags && partial[config.flags_at() + 1LL * first_tile * flags + thread] != 0;
  if (!__syncthreads_or(mine)) return;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    if (!__syncthreads_or(mine && thread / flags == tile)) continue;
    const int first_filter = config.first_filter(first_tile + tile);
    const int first_channel = config.window_channel(first_tile + tile);
#pragma unroll 1
    for (int first = 0; first < kAll; first += kAddThreads) {
      const int filter = first_filter + (first + thread) / kRun;
      const int channel = first_channel + (first + thread) % kRun / config.window_taps();
      const bool real = first + thread < kAll && filter < a.k && channel < a.c;
      const long long weight =
          (1LL * filter * a.c + channel) * config.window_taps() + (first + thread) % config.window_taps();
      const float sum = real ? load_element<a.x_type>(dw, weight) : 0;
      store_gradient<config, a.x_type, kAddThreads>(x, dy, dw, nullptr, real && sum != sum ? weight : -1,
                                                    sum);
    }
  }
}

}  // namespace convtune::weight_gradient_half_sm90
