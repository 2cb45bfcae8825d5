// How blocks of weight_gradient_half_sm90.cuh that share tiles store gradients in one launch (config.h): a
// block comes to the counter of each of its tiles, adds up some rows of a tile in the order of the blocks
// when all have come, and rounds once. Who waits in vain, for blocks that have found no multiprocessor yet,
// goes, and who comes last adds up its rows, too: so no block depends on another to begin.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/store.cuh"
#include "cuda/ptx/counters.cuh"
#include "cuda/ptx/votes.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_half_sm90 {

// Rows of a tile that are stored together, from `begin` on.
struct Rows {
  int tile, begin, count;
};

// What the threads that multiply know of the end.
template <WeightGradientHalfSm90 config>
struct Finish {
  static constexpr ConvExtents kConv = config.conv;
  static constexpr int kThreads = 128 * config.consumers(), kTaps = config.taps();
  static constexpr int kBlocks = config.tile_blocks(), kChannels = config.block_channels();
  static constexpr int kEights = kChannels / 8, kPolls = 64;
  static constexpr unsigned kBarrier = 15, kBlockBytes = config.joint_block_bytes();

  const void *x, *dy;
  float* partial;
  unsigned* counters;
  void *dw, *dbias;
  unsigned smem;
  int dw_last;
  unsigned was_last = 0;  // a bit for each of the block's tiles, which are two at most, of the first thread

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ unsigned flags() const { return smem + config.smem().stages; }
  __device__ unsigned staged() const { return flags() + 4 * config.kMostJointSharers; }
  __device__ unsigned staged(int row, int block, int channel) const {
    return staged() + row * config.joint_row_bytes() + block * kBlockBytes + 2 * channel;
  }
  __device__ float* word_of(int part, int tile) const {
    return partial + config.flags_at() + config.place(part, tile);
  }
  __device__ static void wait() { ptx::bar_sync(kBarrier, kThreads); }

  // Where a gradient lies in dw.
  __device__ long long place(int filter, WeightGradientHalfSm90::Columns at, int channel) const {
    const long long of_filter = 1LL * filter * kConv.c * kTaps;
    return dw_last != 0 ? of_filter + 1LL * at.tap * kConv.c + at.channel + channel
                        : of_filter + 1LL * (at.channel + channel) * kTaps + at.tap;
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
      float sum = gradient_share<config>(x, dy, now, lane, 32);
#pragma unroll 1
      for (int half = 16; half > 0; half /= 2) {
        const float other = __shfl_sync(0xffffffff, sum, lane ^ half);
        sum = lane & half ? other + sum : sum + other;  // in every lane the same
      }
      if (lane == 0) store_element<kConv.x_type>(dw, place_of_gradient<kConv>(now, dw_last), sum);
    }
  }

  // Stores rounded rows, and computes again what is NaN of them.
  __device__ void store(const Rows& rows, bool is_nan) const {
    const int filters = lesser(rows.count, kConv.k - config.first_filter(rows.tile) - rows.begin);
    const int first_filter = config.first_filter(rows.tile) + rows.begin;
    const bool any_nan = ptx::bar_sync_or(kBarrier, kThreads, is_nan);
    auto* const to = static_cast<unsigned short*>(dw);
    constexpr bool kRuns = config.window > 0 && config.conv.t == 1 && config.aligned;
    if (dw_last != 0) {
      constexpr int kPieces = kBlocks * kEights;
#pragma unroll 2
      for (int i = thread(); i < filters * kPieces; i += kThreads) {
        const int row = i / kPieces, block = i % kPieces / kEights, channel = i % kEights * 8;
        const auto at = config.columns_of(rows.tile, block);
        if (at.tap >= kTaps || at.channel + channel >= kConv.c) continue;
        unsigned words[4];
        ptx::ld_shared_v4(words, staged(row, block, channel));
        store_eight(to + place(first_filter + row, at, channel), words);
      }
    } else if constexpr (kRuns) {
      constexpr int kPieces = kChannels * kTaps / 8;
      const int first_channel = config.window_channel(rows.tile);
      const int pieces = lesser(kChannels, kConv.c - first_channel) * kTaps / 8;
#pragma unroll 2
      for (int i = thread(); i < filters * kPieces; i += kThreads) {
        const int row = i / kPieces, piece = i % kPieces;
        if (piece >= pieces) continue;
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int even = 8 * piece + 2 * j, odd = even + 1;
          words[j] = ptx::ld_shared_u16(staged(row, even % kTaps, even / kTaps)) |
                     ptx::ld_shared_u16(staged(row, odd % kTaps, odd / kTaps)) << 16;
        }
        store_eight(to + (1LL * (first_filter + row) * kConv.c + first_channel) * kTaps + 8 * piece, words);
      }
    } else {
#pragma unroll 4
      for (int i = thread(); i < filters * kChannels * kBlocks; i += kThreads) {
        const int row = i / (kChannels * kBlocks), channel = i / kBlocks % kChannels, block = i % kBlocks;
        const auto at = config.columns_of(rows.tile, block);
        if (at.tap >= kTaps || at.channel + channel >= kConv.c) continue;
        to[place(first_filter + row, at, channel)] =
            static_cast<unsigned short>(ptx::ld_shared_u16(staged(row, block, channel)));
      }
    }
    if (!any_nan) return;
    wait();  // nobody stores over what is computed again
#pragma unroll 1
    for (int first = 0; first < rows.count * kBlocks * kChannels; first += kThreads) {
      const int i = first + thread();
      const int row = i / (kChannels * kBlocks), block = i / kChannels % kBlocks, channel = i % kChannels;
      const auto at = config.columns_of(rows.tile, block);
      long long weight = -1;
      if (row < filters && at.tap < kTaps && at.channel + channel < kConv.c) {
        const float sum = low_half<kConv.x_type>(
            static_cast<unsigned short>(ptx::ld_shared_u16(staged(row, block, channel))));
        if (sum != sum)
          weight = (1LL * (first_filter + row) * kConv.c + at.channel + channel) * kTaps + at.tap;
      }
      compute_again(weight);
    }
  }
  __device__ static void store_eight(unsigned short* to, const unsigned (&words)[4]) {
    if constexpr (config.aligned) {
      *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) to[j] = static_cast<unsigned short>(words[j / 2] >> (j % 2 * 16));
    }
  }

  // ---- A tile that is one block's ----
  __device__ void store_sums(const Sums<config>& sums, int tile, int first_row, int column_group) const {
    wait();  // nobody multiplies what lies there
    const int lane = thread() % 32, row = first_row + thread() / 32 % 4 * 16 + lane / 4;
    bool is_nan = false;
#pragma unroll
    for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
      for (int i = 0; i < config.columns / 2; i += 2) {
        const int column = i / 4 * 8;  // of the group's, less the lane's
        const int block = column_group * (config.columns / kChannels) + column / kChannels;
        const float a = sums[m][i], b = sums[m][i + 1];
        ptx::st_shared(staged(row + 64 * m + i / 2 % 2 * 8, block, column % kChannels + lane % 4 * 2),
                       pack_halves<kConv.x_type>(a, b));
        is_nan = is_nan || a != a || b != b;
      }
    store({tile, 0, config.tile_rows()}, is_nan);
  }

  // ---- Tiles that blocks share ----
  // This block's part of a tile is in memory.
  __device__ void come(int tile) {
    wait();
    if (thread() != 0) return;
    const int first = config.first_sharer(tile), others = config.last_sharer(tile) - first;
    *word_of(static_cast<int>(blockIdx.x), tile) = 0;
    if (ptx::come_to(counters + tile - config.whole, others) == others) was_last |= 1u << tile % 32;
  }
  __device__ bool comes_last(int tile) const { return (was_last >> tile % 32 & 1) != 0; }
  // True where all parts of a tile are there; where they are not, who comes last does this block's share.
  __device__ bool all_are_there(int tile) const {
    bool there = true;
    if (thread() == 0 && !comes_last(tile)) {
      const unsigned* const counter = counters + tile - config.whole;
      there = ptx::all_have_come(counter, kPolls);
      if (!there) {
        *word_of(static_cast<int>(blockIdx.x), tile) = 1;
        ptx::fence_both_ways();
        there = ptx::all_have_come(counter, 1);  // both may add up the same, in one order
      }
    }
    return !ptx::bar_sync_or(kBarrier, kThreads, !there);
  }
  // Adds up the rows of one who shares a tile, of so many.
  __device__ void add_up(int tile, int share, int shares) const {
    constexpr int kAtOnce = lesser(config.most_sharers(), 8), kFours = config.tile_columns() / 4;
    constexpr int kTurns = ceil_div(config.most_joint_rows() * kFours, kThreads);
    constexpr int kTogether = lesser(kTurns, greater((config.consumers() == 3 ? 8 : 16) / kAtOnce, 1));
    constexpr long long kStep = config.place_words();
    const int each = ceil_div(config.tile_rows(), shares), begin = share * each;
    const int rows = lesser(each, config.tile_rows() - begin);
    if (rows <= 0) return;
    const float* const from = partial + config.place(config.first_sharer(tile), tile) * kStep;
    bool is_nan = false;
    wait();  // nobody reads what was staged before
#pragma unroll 1
    for (int first = thread(); first < rows * kFours; first += kTogether * kThreads) {
      float sums[kTogether][4] = {};
      int at[kTogether];
      unsigned to[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int i = first + k * kThreads, row = i / 2 % rows, column = i / 2 / rows * 8 + i % 2 * 4;
        const int block = column / kChannels, channel = column % kChannels;
        const auto columns = config.columns_of(tile, block);
        const bool real = i < rows * kFours && columns.tap < kTaps && columns.channel + channel < kConv.c;
        at[k] = real ? config.sum_at(begin + row, column) : -1;
        to[k] = staged(row, block, channel);
      }
#pragma unroll 1
      for (int left = shares, part = 0; left > 0; left -= kAtOnce, part += kAtOnce) {
        float4 some[kTogether][kAtOnce];
#pragma unroll
        for (int k = 0; k < kTogether; ++k)
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j)
            if (j < left && at[k] >= 0)
              some[k][j] = ptx::ld_of_grid(reinterpret_cast<const float4*>(from + (part + j) * kStep + at[k]));
#pragma unroll
        for (int k = 0; k < kTogether; ++k)
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j)
            if (j < left && at[k] >= 0) {
              sums[k][0] += some[k][j].x, sums[k][1] += some[k][j].y;
              sums[k][2] += some[k][j].z, sums[k][3] += some[k][j].w;
            }
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (at[k] < 0) continue;
        ptx::st_shared(to[k], pack_halves<kConv.x_type>(sums[k][0], sums[k][1]));
        ptx::st_shared(to[k] + 4, pack_halves<kConv.x_type>(sums[k][2], sums[k][3]));
#pragma unroll
        for (int j = 0; j < 4; ++j) is_nan = is_nan || sums[k][j] != sums[k][j];
      }
    }
    if (config.bias && config.first_block(tile) == 0 && dbias != nullptr)
      for (int row = thread(); row < rows; row += kThreads) {
        const int filter = config.first_filter(tile) + begin + row;
        float sum = 0;
        for (int part = 0; part < shares; ++part)
          sum += ptx::ld_of_grid(from + part * kStep + config.row_sums_at() + begin + row);
        if (filter < kConv.k) store_element<kConv.bias_type>(dbias, filter, sum);
      }
    store({tile, begin, rows}, is_nan);
  }
  // Leaves in shared memory who of a tile went, where this block was the last to come, and tells whether it was.
  __device__ bool finds_who_went(int tile, int shares) const {
    if (!ptx::bar_sync_or(kBarrier, kThreads, thread() == 0 && comes_last(tile))) return false;
    if (thread() == 0) ptx::fence_both_ways();
    wait();
    const int first = config.first_sharer(tile);
    for (int i = thread(); i < shares; i += kThreads)
      ptx::st_shared(flags() + 4 * i, ptx::ld_of_grid(word_of(first + i, tile)) != 0 ? 1u : 0u);
    wait();
    return true;
  }
  // All parts of this block, when they are in memory: its own rows, and those of who went.
  __device__ void add_up_parts() const {
#pragma unroll 1
    for (Part<config> part; part.exists(); part.next()) {
      if (part.is_whole()) continue;
      const int tile = part.tile, first = config.first_sharer(tile);
      const int shares = config.last_sharer(tile) + 1 - first, mine = static_cast<int>(blockIdx.x) - first;
      int share = all_are_there(tile) ? mine : shares;
#pragma unroll 1
      for (bool own = true; own || share < shares; own = false) {
        if (share < shares) add_up(tile, share, shares);
        if (own) share = finds_who_went(tile, shares) ? -1 : shares;
        do ++share;
        while (share < shares && (share == mine || ptx::ld_shared(flags() + 4 * share) == 0));
      }
    }
  }

  // ---- Whole tiles of a block that has several ----
  // Reads back what is NaN of them, when all are stored, and computes it again.
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
          const float sum = load_element<kConv.x_type>(dw, place_of_gradient<kConv>(weight, dw_last));
          if (sum == sum) weight = -1;
        }
        compute_again(weight);
      }
  }
};

}  // namespace convtune::weight_gradient_half_sm90
