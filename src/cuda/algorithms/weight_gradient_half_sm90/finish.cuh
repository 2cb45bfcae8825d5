// How blocks of weight_gradient_half_sm90.cuh store gradients in one launch, where no tile is split
// (config.h): all taps of a tile's channels that it has beside each other, and what is NaN computed again.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/store.cuh"
#include "cuda/ptx/votes.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_half_sm90 {

// Pointers that a block stores by, and x and dy, which it reads again where sums are no numbers.
struct Outputs {
  const void *x, *dy;
  float* partial;
  void *dw, *dbias;
  int dw_last;
};

// The end of the threads that multiply.
template <WeightGradientHalfSm90 config>
struct Finish {
  static constexpr ConvExtents kConv = config.conv;
  static constexpr int kThreads = 128 * config.consumers(), kTaps = config.taps();
  static constexpr int kBlocks = config.tile_blocks(), kChannels = config.block_channels();
  static constexpr int kRowBytes = config.joint_row_bytes();
  static constexpr unsigned kBarrier = 15;

  const Outputs& to;
  unsigned smem;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ unsigned place_of_sum(int row, int block, int channel) const {
    return smem + config.smem().stages + row * kRowBytes + block * config.joint_block_bytes() + 4 * channel;
  }
  __device__ float sum_at(int row, int block, int channel) const {
    float sum;
    ptx::ld_shared(sum, place_of_sum(row, block, channel));
    return sum;
  }
  __device__ static void meet() { ptx::bar_sync(kBarrier, kThreads); }

  // Puts a thread's sums where all threads find them.
  __device__ void put(const Sums<config>& sums, const RowSums<config>& row_sums, int first_row,
                      int column_group, bool has_row_sums) const {
    const int lane = thread() % 32, first = first_row + thread() / 32 % 4 * 16 + lane / 4;
    meet();  // nobody multiplies what lies there
#pragma unroll
    for (int half = 0; half < 2 * config.row_blocks; ++half) {
      const unsigned mine = place_of_sum(first + half / 2 * 64 + half % 2 * 8, 0, 0);
#pragma unroll
      for (int i = 0; i < config.columns / 8; ++i) {
        const int block = column_group * (config.columns / kChannels) + 8 * i / kChannels;
        ptx::st_shared_v2(mine + block * config.joint_block_bytes() + 4 * (8 * i % kChannels + lane % 4 * 2),
                          sums[half / 2][4 * i + half % 2 * 2], sums[half / 2][4 * i + half % 2 * 2 + 1]);
      }
      if (config.bias && has_row_sums && lane % 4 == 0)
        ptx::st_shared_v2(mine + kBlocks * config.joint_block_bytes(), row_sums[half / 2][half % 2 * 2], 0);
    }
    meet();
  }

  // Stores gradients of a tile.
  __device__ void store(int tile) const {
    const int first_filter = config.first_filter(tile);
    const int rows = lesser(config.tile_rows(), kConv.k - first_filter);
    const bool by_taps = kTaps == 1 || to.dw_last != 0;  // 1x1: in either order the same
    const bool any_nan = ptx::bar_sync_or(
        kBarrier, kThreads,
        by_taps ? store_taps(tile, first_filter, rows) : store_columns(tile, first_filter, rows));
    if (config.bias && config.first_block(tile) == 0 && to.dbias != nullptr)
      for (int row = thread(); row < rows; row += kThreads)
        store_element<kConv.bias_type>(to.dbias, first_filter + row, sum_at(row, kBlocks, 0));
    if (!any_nan) return;
#pragma unroll 1
    for (int first = 0; first < rows * kBlocks * kChannels; first += kThreads) {
      const int i = first + thread();
      const int row = i / (kChannels * kBlocks), block = i / kChannels % kBlocks, channel = i % kChannels;
      const auto at = config.columns_of(tile, block);
      long long weight = -1;
      if (row < rows && at.tap < kTaps && at.channel + channel < kConv.c) {
        const float sum = sum_at(row, block, channel);
        if (sum != sum)
          weight = (1LL * (first_filter + row) * kConv.c + at.channel + channel) * kTaps + at.tap;
      }
      compute_again(weight);
    }
  }
  // A thread has a column, and stores it of each so many-th row: taps of a channel beside each other. Tells
  // whether one of its gradients is NaN.
  __device__ bool store_columns(int tile, int first_filter, int rows) const {
    constexpr int kColumns = kChannels * kBlocks, kAtOnce = greater(kThreads / kColumns, 1);
    bool is_nan = false;
#pragma unroll
    for (int set = 0; set < ceil_div(kColumns, kThreads); ++set) {
      const int column = set * kThreads + thread() % (kColumns < kThreads ? kColumns : kThreads);
      const int first_row = kColumns < kThreads ? thread() / kColumns : 0;
      const int block = column % kBlocks, channel = column / kBlocks;
      const auto at = config.columns_of(tile, block);
      if (column >= kColumns || first_row >= kAtOnce || at.tap >= kTaps || at.channel + channel >= kConv.c)
        continue;
      unsigned from = place_of_sum(first_row, block, channel);
      auto* dw = static_cast<unsigned short*>(to.dw) +
                 (1LL * (first_filter + first_row) * kConv.c + at.channel + channel) * kTaps + at.tap;
#pragma unroll 4
      for (int row = first_row; row < rows; row += kAtOnce) {
        float sum;
        ptx::ld_shared(sum, from);
        is_nan = is_nan || sum != sum;
        *dw = static_cast<unsigned short>(pack_halves<kConv.x_type>(sum, 0));
        from += kAtOnce * kRowBytes, dw += 1LL * kAtOnce * kConv.c * kTaps;
      }
    }
    return is_nan;
  }
  // As above, channels last: eight channels of a tap at a time.
  __device__ bool store_taps(int tile, int first_filter, int rows) const {
    constexpr int kEights = kChannels / 8, kPieces = kBlocks * kEights;
    bool is_nan = false;
#pragma unroll 2
    for (int i = thread(); i < rows * kPieces; i += kThreads) {
      const int row = i / kPieces, block = i % kPieces / kEights, channel = i % kEights * 8;
      const auto at = config.columns_of(tile, block);
      if (at.tap >= kTaps || at.channel + channel >= kConv.c) continue;
      float eight[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        eight[j] = sum_at(row, block, channel + j);
        is_nan = is_nan || eight[j] != eight[j];
      }
      auto* const dw = static_cast<unsigned short*>(to.dw) +
                       (1LL * (first_filter + row) * kTaps + at.tap) * kConv.c + at.channel + channel;
      if constexpr (config.aligned) {
        *reinterpret_cast<uint4*>(dw) = {
            pack_halves<kConv.x_type>(eight[0], eight[1]), pack_halves<kConv.x_type>(eight[2], eight[3]),
            pack_halves<kConv.x_type>(eight[4], eight[5]), pack_halves<kConv.x_type>(eight[6], eight[7])};
      } else {
#pragma unroll
        for (int j = 0; j < 8; ++j) store_element<kConv.x_type>(dw, j, eight[j]);
      }
    }
    return is_nan;
  }

  // A warp's gradients that are NaN, each by all of its lanes: `weight` is that of a lane's, or -1.
  __device__ void compute_again(long long weight) const {
    if (__all_sync(0xffffffff, weight < 0)) return;
    const int lane = thread() % 32;
    const int low = static_cast<int>(weight), high = static_cast<int>(weight >> 32);
#pragma unroll 1
    for (int i = 0; i < 32; ++i) {
      const long long now = static_cast<long long>(__shfl_sync(0xffffffff, high, i)) << 32 |
                            static_cast<unsigned>(__shfl_sync(0xffffffff, low, i));
      if (now < 0) continue;
      float sum = gradient_share<config>(to.x, to.dy, now, lane, 32);
#pragma unroll 1
      for (int half = 16; half > 0; half /= 2) {
        const float other = __shfl_sync(0xffffffff, sum, lane ^ half);
        sum = lane & half ? other + sum : sum + other;  // in every lane the same
      }
      if (lane == 0) store_element<kConv.x_type>(to.dw, place_of_gradient<kConv>(now, to.dw_last), sum);
    }
  }
  // Whole tiles of a block that has several: reads back what is NaN of them, when all are stored, and
  // computes it again.
  __device__ void check_whole_tiles(bool is_nan) const {
    if (!ptx::bar_sync_or(kBarrier, kThreads, is_nan)) return;
    constexpr int kRun = kChannels * kTaps;
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x); tile < config.whole; tile += config.blocks)
#pragma unroll 1
      for (int first = 0; first < config.tile_rows() * kRun; first += kThreads) {
        const int i = first + thread(), filter = config.first_filter(tile) + i / kRun;
        const int channel = config.window_channel(tile) + i % kRun / kTaps;
        long long weight = -1;
        if (i < config.tile_rows() * kRun && filter < kConv.k && channel < kConv.c) {
          weight = (1LL * filter * kConv.c + channel) * kTaps + i % kTaps;
          const float sum = load_element<kConv.x_type>(to.dw, place_of_gradient<kConv>(weight, to.dw_last));
          if (sum == sum) weight = -1;
        }
        compute_again(weight);
      }
  }
};

}  // namespace convtune::weight_gradient_half_sm90
