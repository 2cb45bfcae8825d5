// The warpgroups of direct_body_sm90.cuh that load: of four warps three bring input, rounded to TF32; the
// first fourth brings packed weights.
#pragma once

#include "cuda/algorithms/direct_body_sm90/positions.h"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/several.cuh"
#include "cuda/ptx/wgmma_tf32.cuh"
#include "cuda/ptx/wgmma_three.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/ring.cuh"
#include "cuda/tile/tf32.cuh"
#include "cuda/tile/walk.cuh"

namespace convtune::direct_body_sm90 {

// Blocks of the sum of a tile: where no tap over time is left out all of them, without asking where it
// begins.
template <DirectBodySm90 config>
__device__ __forceinline__ DirectBodySm90::Range blocks_that_count(int first_position) {
  if constexpr (config.skips_frames())
    return config.tile_blocks(first_position);
  else
    return {0, Sizes<config>::kBlocks};
}

// By one thread: packed weights in the order of the products.
template <DirectBodySm90 config>
__device__ void bring_weights(const float* __restrict__ packed, unsigned smem, int backwards) {
  using S = Sizes<config>;
  const Walk<config> walk{backwards};
  Ring<S::kWeightStages> ring;
  for (int tile = walk.first; tile < walk.kTiles; tile += walk.step) {
    const DirectBodySm90::Range blocks = blocks_that_count<config>(walk.first_position(tile));
    const char* from =
        reinterpret_cast<const char*>(packed + walk.filter_block(tile) * config.block_weights()) +
        blocks.first * (S::kWeightGroups * S::kWeightBytes);
#pragma unroll 1
    for (int group = 0; group < blocks.count() * S::kWeightGroups; ++group) {
      ring.wait_empty(smem + S::kAt.weights_done);
      const unsigned full = ring.barrier(smem + S::kAt.weights_full);
      ptx::mbarrier_arrive_expect(full, S::kWeightBytes);
      ptx::bulk_copy_to_shared(smem + S::kAt.weights + ring.slot * S::kWeightBytes, from, S::kWeightBytes,
                               full);
      from += S::kWeightBytes;
      ring.next();
    }
  }
}

// Batches that a loading thread takes its chunks of a stage in: all but the oldest are on their way. Which
// batch and which registers are constants in the code of a lap, after which both begin anew. A lap is written
// out, and compiling waits for it: of the ways to have enough on its way it is the shortest.
template <DirectBodySm90 config>
struct Batches {
  static constexpr int kNeeded = config.loads();
  static constexpr int kForThese = config.conv.nhwc ? 88 : 104;
  static constexpr int kRegisters = (config.threads() > 384 ? 80 : kForThese) - config.loader_chunks();
  static constexpr int kMostInFlight = kRegisters / 4, kMostDepth = 8;
  static constexpr int kMostAtOnce = config.conv.nhwc ? kMostInFlight / 2 : 12;
  static constexpr int at_once(int count) { return ceil_div(kNeeded, count); }
  static constexpr int lap(int count, int depth) {  // their least common multiple
    return count / gcd(count, depth) * depth;
  }
  struct Choice {
    int count, depth;
  };
  static constexpr Choice choose() {
    constexpr int kEnough = 3 * kMostInFlight / 2;  // twice what is on its way, on average
    Choice best{0, 0};
    int most = 0, least = 0;
    for (int count = ceil_div(kNeeded, kMostAtOnce); count <= (kNeeded + 2) / 3; ++count)
      for (int depth = 2; depth <= kMostDepth; ++depth) {
        const int some = at_once(count), code = lap(count, depth) * (some + 1);
        const int flying = lesser((2 * depth - 1) * some, kEnough);
        if (depth > 2 && some * depth > kMostInFlight) break;
        if (flying > most || (flying == most && code < least))
          best = {count, depth}, most = flying, least = code;
      }
    return best;
  }
  static constexpr Choice kChoice = choose();
  static constexpr int kCount = kChoice.count, kAtOnce = at_once(kCount);
  static constexpr int kDepth = kChoice.depth, kLap = lap(kCount, kDepth);
};

// Blocks of the sums of all tiles of this block of threads.
template <DirectBodySm90 config>
__device__ __forceinline__ int all_blocks(const Walk<config>& walk) {
  if constexpr (!config.skips_frames()) return walk.tiles() * config.blocks();
  int blocks = 0;
#pragma unroll 1
  for (int tile = walk.first; tile < walk.kTiles; tile += walk.step)
    blocks += blocks_that_count<config>(walk.first_position(tile)).count();
  return blocks;
}

// Everything that a thread that loads input does, one of config.loaders().
template <DirectBodySm90 config>
__device__ void load_input(const float* __restrict__ x, unsigned smem, int thread, int backwards) {
  using S = Sizes<config>;
  using B = Batches<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kPlanePixels = a.d * a.h * a.w;
  constexpr int kChunks = config.loader_chunks();  // for this thread and a unit
  constexpr int kStageUnits = config.stage_units(), kTogether = config.together();
  constexpr int kChannel = a.nhwc ? 1 : kPlanePixels;  // floats from channel to channel
  constexpr bool kWholeChannels = a.c % config.channels == 0;
  const Walk<config> walk{backwards};
  const int steps = all_blocks(walk) * B::kCount;
  const int first_unit = a.nhwc ? thread % kStageUnits : 0;
  const int first_chunk = a.nhwc ? thread / kStageUnits : thread;
  const float* const mine_of_x = a.nhwc ? x + first_unit * 4 : x;
  unsigned values[B::kDepth][B::kAtOnce][4];

  DirectBodySm90::Range blocks = blocks_that_count<config>(walk.first_position(walk.first));
  int load_block = blocks.first, load_tile = walk.first;
  const float* from = x;  // for the tile's first image the stage's first channel
  int sources[kChunks];   // from there on, or -1
  const auto load = [&](int batch, int slot) {
    const int frame_block = a.t == 1 ? load_block : load_block % S::kFrameBlocks;
    if (batch == 0 && frame_block == 0) {
      const int first = walk.first_position(load_tile);
      const int first_image = first / S::kImagePositions / S::kStrips / a.z;
      from = mine_of_x + static_cast<long long>(first_image) * (a.c * kPlanePixels);
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        sources[i] = chunk_source<config>(first_chunk + kTogether * i, first, first_image,
                                          a.t == 1 ? 0 : load_block / S::kFrameBlocks);
    }
#pragma unroll
    for (int i = 0; i < B::kAtOnce; ++i) {
      const int item = batch * B::kAtOnce + i;
      if (item < B::kNeeded) {
        const int in_stage = item / kChunks;
        const int unit = frame_block * kStageUnits + in_stage + first_unit;
        const int source = sources[item % kChunks];
        if constexpr (config.wide_input()) {
          const bool there = source >= 0 && (kWholeChannels || unit * 4 < a.c);
          ptx::ld_global_v4_if(values[slot][i], from + source, there);
        } else {
          int channels[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) channels[j] = kWholeChannels || unit * 4 + j < a.c ? source : -1;
          ptx::ld_global_four_if<kChannel>(values[slot][i], from + in_stage * 4LL * kChannel, channels);
        }
      }
    }
    if (batch == B::kCount - 1) {
      from += static_cast<long long>(config.channels) * kChannel;
      if (++load_block == blocks.end) {
        blocks = blocks_that_count<config>(walk.first_position(load_tile + walk.step));
        load_block = blocks.first, load_tile += walk.step;
      }
    }
  };

  Ring<S::kStages> ring;
  int stage = 0;
  float largest = 0;  // for the stage's numbers; NaN where one is
  const unsigned mine = smem + S::kAt.stages + (first_unit * S::kPlane + first_chunk) * 16;
  const auto store = [&](int batch, int slot) {
    if (batch == 0) ring.wait_empty(smem + S::kAt.done);
    const unsigned to = mine + ring.slot * S::kStageBytes;
#pragma unroll
    for (int i = 0; i < B::kAtOnce; ++i) {
      const int item = batch * B::kAtOnce + i;
      if (item < B::kNeeded) {
        const int chunk = item % kChunks * kTogether;
        const int place = item / kChunks * S::kPlane + chunk;
        ptx::st_shared_v4_rounded_if(
            to, place * 16, values[slot][i], largest,
            chunk + kTogether <= S::kUnitChunks || first_chunk + chunk < S::kUnitChunks);
      }
    }
    if (batch < B::kCount - 1) return;
    // Whatever rounds to infinity is flagged too. No other stage has this number: it is never cleared.
    if (!(largest < kTf32Overflow))
      ptx::st_shared(smem + S::kAt.flags + 4 * ring.slot, static_cast<unsigned>(stage + 1));
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(ring.barrier(smem + S::kAt.full));
    largest = 0, ++stage;
    ring.next();
  };

  // The first lap only loads.
  const auto exists = [&](int step) { return static_cast<unsigned>(step) < static_cast<unsigned>(steps); };
#pragma unroll 1
  for (int step = -B::kLap; step < steps; step += B::kLap) {
#pragma unroll
    for (int i = 0; i < B::kLap; ++i) {
      const int ahead = i + B::kDepth - 1;
      if (exists(step + ahead)) load(ahead % B::kCount, ahead % B::kDepth);
      if (exists(step + i)) store(i % B::kCount, i % B::kDepth);
    }
  }
}

}  // namespace convtune::direct_body_sm90
