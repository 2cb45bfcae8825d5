// How a block of weight_gradient_half_sm90.cuh stores gradients of whole tiles: some channels of a filter
// with all of their taps, which dw has one behind the other.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/load.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::weight_gradient_half_sm90 {

template <WeightGradientHalfSm90 config>
using Sums = float[config.row_blocks][config.columns / 2];
template <WeightGradientHalfSm90 config>
using RowSums = float[config.row_blocks][4];

// Puts eight filters at a time into shared memory in dw's order, taps of all consumers, and stores their
// runs. Tells whether one of the thread's gradients is NaN. `dw_last`: 1 where dw lies channels last.
template <WeightGradientHalfSm90 config>
__device__ __forceinline__ bool store_whole(const Sums<config>& sums, void* __restrict__ dw, unsigned smem,
                                            int tile, int first_row, int column_group, int dw_last) {
  constexpr ConvExtents a = config.conv;
  constexpr int kTaps = config.window_taps(), kBlock = config.block_channels();
  constexpr int kPieces = kBlock * kTaps / 8;  // pieces of 16 bytes
  constexpr unsigned kThreads = 32 * config.column_groups;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = first_row / config.consumer_rows() * 4 + warp;  // warps that have the same filters
  const unsigned staged = smem + config.smem().staged + group * config.staged_bytes();
  const unsigned row_of_mine = staged + lane / 4 * config.staged_row_bytes();
  const int first_channel = config.window_channel(tile);
  const int pieces = lesser(kBlock, a.c - first_channel) * kTaps / 8;  // that there are of a filter
  const int first_filter = config.first_filter(tile) + first_row + 16 * warp;
  bool is_nan = false;
#pragma unroll
  for (int half = 0; half < 2 * config.row_blocks; ++half) {
    ptx::bar_sync(1 + group, kThreads);  // waits until the sums that were staged before are stored
    const auto put = [&](auto channel_step, auto tap_step) {
      const unsigned mine =
          row_of_mine + 2 * (lane % 4 * 2 * channel_step.value + column_group * a.s * tap_step.value);
#pragma unroll
      for (int i = 0; i < config.columns / 4; ++i) {
        const int column = i / 2 * 8 + i % 2;  // less the lane's
        const float sum = sums[half / 2][i / 2 * 4 + half % 2 * 2 + i % 2];
        is_nan = is_nan || sum != sum;
        ptx::st_shared_u16(
            mine + 2 * (column % kBlock * channel_step.value + column / kBlock * tap_step.value),
            pack_halves<a.x_type>(sum, 0));
      }
    };
    if (dw_last != 0)
      put(Int<1>{}, Int<kBlock>{});
    else
      put(Int<kTaps>{}, Int<1>{});
    ptx::bar_sync(1 + group, kThreads);
#pragma unroll 1
    for (int i = column_group * 32 + lane; i < config.kStagedRows * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      const int filter = first_filter + half / 2 * 64 + half % 2 * 8 + row;
      constexpr int kEights = kBlock / 8;
      if (filter >= a.k || (dw_last != 0 ? piece % kEights * kTaps : piece) >= pieces) continue;
      unsigned words[4];
      ptx::ld_shared_v4(words, staged + row * config.staged_row_bytes() + 16 * piece);
      const long long weight =
          dw_last != 0 ? (1LL * filter * kTaps + piece / kEights) * a.c + first_channel + piece % kEights * 8
                       : (1LL * filter * a.c + first_channel) * kTaps + 8 * piece;
      if constexpr (config.aligned) {
        *reinterpret_cast<uint4*>(static_cast<unsigned short*>(dw) + weight) = {words[0], words[1], words[2],
                                                                                words[3]};
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j)
          static_cast<unsigned short*>(dw)[weight + j] =
              static_cast<unsigned short>(words[j / 2] >> (j % 2 * 16));
      }
    }
  }
  return is_nan;
}

// A filter's gradient of the bias, by the lane that has it.
template <WeightGradientHalfSm90 config>
__device__ __forceinline__ void store_biases(const RowSums<config>& row_sums, void* __restrict__ dbias,
                                             int tile, int first_row) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane % 4 != 0 || dbias == nullptr) return;
#pragma unroll
  for (int half = 0; half < 2 * config.row_blocks; ++half) {
    const int filter =
        config.first_filter(tile) + first_row + 16 * warp + lane / 4 + half / 2 * 64 + half % 2 * 8;
    if (filter < config.conv.k)
      store_element<config.conv.bias_type>(dbias, filter, row_sums[half / 2][half % 2 * 2]);
  }
}

}  // namespace convtune::weight_gradient_half_sm90
