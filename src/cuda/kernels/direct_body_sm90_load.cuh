// What a block of direct_body_sm90.cuh works through, its shared memory, and the warpgroups that load: of
// four warps three bring input, rounded to TF32; the first fourth brings packed weights.
#pragma once

#include "constants.cuh"
#include "direct_body_sm90_positions.h"
#include "ptx_sm90.cuh"

namespace convtune {
namespace body {

// Shared memory, by its addresses there.
template <DirectBodySm90 config>
struct Smem {
  using S = Sizes<config>;
  unsigned weights, stages, staging, output_table, full, done, weights_full, weights_done, flags;
  __device__ explicit Smem(unsigned start)
      : weights(start),
        stages(weights + S::kWeightStages * S::kWeightBytes),
        staging(stages + S::kStages * S::kStageBytes),
        output_table(staging + config.staging_bytes()),
        full(output_table + config.output_table_bytes()),
        done(full + 8 * S::kStages),
        weights_full(done + 8 * S::kStages),
        weights_done(weights_full + 8 * S::kWeightStages),
        flags(weights_done + 8 * S::kWeightStages) {}
};

__device__ inline void store_shared(unsigned address, unsigned value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ inline unsigned load_shared(unsigned address) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// A slot of a ring and the parity of its phase, counted on without a division.
template <int kSlots>
struct Ring {
  int slot = 0;
  unsigned parity = 0;
  __device__ void next() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

// Tiles of this block: the filter blocks of the same positions run beside each other.
template <DirectBodySm90 config>
struct Walk {
  using S = Sizes<config>;
  int tiles = (S::kTiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
              static_cast<int>(gridDim.x);
  __device__ int tile(int index) const {
    return static_cast<int>(blockIdx.x) + index * static_cast<int>(gridDim.x);
  }
  __device__ int filter_block(int index) const { return tile(index) % S::kFilterBlocks; }
  __device__ int first_position(int index) const {
    return tile(index) / S::kFilterBlocks * S::kBlockPositions;
  }
};

// By one thread: packed weights in the order of the products.
template <DirectBodySm90 config>
__device__ void bring_weights(const float* __restrict__ packed, const Smem<config>& smem) {
  using S = Sizes<config>;
  const Walk<config> walk;
  Ring<S::kWeightStages> ring;
  int filled = 0;
  for (int tile = 0; tile < walk.tiles; ++tile) {
    const char* from =
        reinterpret_cast<const char*>(packed + walk.filter_block(tile) * config.block_weights());
#pragma unroll 1
    for (int group = 0; group < S::kBlocks * S::kWeightGroups; ++group) {
      if (filled < S::kWeightStages)
        ++filled;
      else
        ptx::mbarrier_wait(smem.weights_done + 8 * ring.slot, ring.parity ^ 1);
      const unsigned full = smem.weights_full + 8 * ring.slot;
      ptx::mbarrier_arrive_expect(full, S::kWeightBytes);
      ptx::bulk_copy_to_shared(smem.weights + ring.slot * S::kWeightBytes, from, S::kWeightBytes, full);
      from += S::kWeightBytes;
      ring.next();
    }
  }
}

// Batches that a loading thread takes its chunks of a stage in: all but the oldest are on their way. Which
// batch and which registers are constants in the code of a lap, after which both begin anew.
template <DirectBodySm90 config>
struct Batches {
  static constexpr int kNeeded = config.loader_chunks() * config.stage_units();
  static constexpr int kRegisters = (config.threads() > 384 ? 80 : 100) - config.loader_chunks();
  static constexpr int kMostInFlight = kRegisters / 4, kMostAtOnce = 6;
  static constexpr int kCount = (kNeeded + kMostAtOnce - 1) / kMostAtOnce;
  static constexpr int kAtOnce = (kNeeded + kCount - 1) / kCount;
  static constexpr int lap(int depth) {
    int lap = depth;
    while (lap % kCount != 0) lap += depth;
    return lap;
  }
  static constexpr int depth() {
    int depth = lesser(kMostInFlight / kAtOnce, 8);
    while (depth > 2 && lap(depth) * kAtOnce > 72) --depth;
    return depth;
  }
  static constexpr int kDepth = depth(), kLap = lap(kDepth);
};

// A load with an offset that is part of the instruction, or 0. Volatile: a compiler that moves loads to where
// their values are used would undo what is on its way.
template <long long kOffset>
__device__ __forceinline__ void load_global(float& to, const float* from, bool there) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.b32 there, %2, 0;\nmov.b32 %0, 0;\n"
      "@there ld.global.nc.f32 %0, [%1+%3];\n}"
      : "=f"(to)
      : "l"(from), "r"(static_cast<unsigned>(there)), "n"(kOffset * 4));
}

// Everything that a thread that loads input does, one of config.loaders().
template <DirectBodySm90 config>
__device__ void load_input(const float* __restrict__ x, const Smem<config>& smem, int thread) {
  using S = Sizes<config>;
  using B = Batches<config>;
  constexpr Conv2dExtents a = config.conv;
  constexpr int kLoaders = config.loaders(), kPlanePixels = a.h * a.w;
  constexpr int kChunks = config.loader_chunks();  // of this thread and a unit
  constexpr int kStageUnits = config.stage_units(), kUnits = config.units();
  constexpr bool kWholeStages = kUnits % kStageUnits == 0;
  const Walk<config> walk;
  const int steps = walk.tiles * S::kBlocks * B::kCount;
  float values[B::kDepth][B::kAtOnce][4];

  int load_block = 0, load_tile = 0;
  const float* from = x;  // of the tile's first image the stage's first channel
  int sources[kChunks];   // from there on, or -1
  const auto load = [&](auto batch, auto slot) {
    if (batch.value == 0 && load_block == 0) {
      const int first = walk.first_position(load_tile);
      const int first_image = first / S::kImagePositions / S::kStrips;
      from = x + static_cast<long long>(first_image) * (a.c * kPlanePixels);
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        sources[i] = chunk_source<config>(thread + kLoaders * i, first, first_image);
    }
    for_constants<0, B::kAtOnce>([&](auto i) {
      constexpr int item = decltype(batch)::value * B::kAtOnce + decltype(i)::value;
      if constexpr (item < B::kNeeded) {
        constexpr int in_stage = item / kChunks;
        const int unit = load_block * kStageUnits + in_stage;
        const int source = sources[item % kChunks];
        const bool there = source >= 0 && (kWholeStages || unit < kUnits);
        float(&to)[4] = values[slot.value][i.value];
        const float* const at = from + source;
        for_constants<0, 4>([&](auto j) {
          constexpr int kChannel = in_stage * 4 + decltype(j)::value;
          load_global<static_cast<long long>(kChannel) * kPlanePixels>(
              to[j.value], at, there && (a.c % 4 == 0 || unit * 4 + j.value < a.c));
        });
      }
    });
    if (batch.value == B::kCount - 1) {
      from += static_cast<long long>(config.channels) * kPlanePixels;
      if (++load_block == S::kBlocks) load_block = 0, ++load_tile;
    }
  };

  Ring<S::kStages> ring;
  int stage = 0;
  float largest = 0;  // of the stage's numbers; NaN where one is
  const unsigned mine = smem.stages + thread * 16;
  const auto store = [&](auto batch, auto slot) {
    if (batch.value == 0 && stage >= S::kStages)
      ptx::mbarrier_wait(smem.done + 8 * ring.slot, ring.parity ^ 1);
    const unsigned to = mine + ring.slot * S::kStageBytes;
    for_constants<0, B::kAtOnce>([&](auto i) {
      constexpr int item = decltype(batch)::value * B::kAtOnce + decltype(i)::value;
      if constexpr (item < B::kNeeded) {
        constexpr int chunk = item % kChunks * kLoaders;
        constexpr int place = item / kChunks * S::kPlane + chunk;
        unsigned bits[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float value = values[slot.value][i.value][j];
          asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest) : "f"(fabsf(value)));
          // As cvt_rna_tf32 in what products read of it, in one instruction for four. A NaN may wrap to a
          // number, and is flagged.
          bits[j] = __float_as_uint(value) + 0x1000;
        }
        if (chunk + kLoaders <= S::kUnitChunks || thread + chunk < S::kUnitChunks)
          asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + place * 16), "r"(bits[0]),
                       "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                       : "memory");
      }
    });
    if (batch.value < B::kCount - 1) return;
    // What rounds to infinity is flagged too. No other stage has this number: it is never cleared.
    if (!(largest < 3.402e38f)) store_shared(smem.flags + 4 * ring.slot, stage + 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(smem.full + 8 * ring.slot);
    largest = 0, ++stage;
    ring.next();
  };

  for_constants<0, B::kDepth - 1>([&](auto i) {
    if (i.value < steps) load(Int<i.value % B::kCount>{}, i);
  });
  for (int step = 0; step < steps; step += B::kLap)
    for_constants<0, B::kLap>([&](auto i) {
      constexpr int kNow = decltype(i)::value, kAhead = kNow + B::kDepth - 1;
      if (step + kAhead < steps) load(Int<kAhead % B::kCount>{}, Int<kAhead % B::kDepth>{});
      if (step + kNow < steps) store(Int<kNow % B::kCount>{}, Int<kNow % B::kDepth>{});
    });
}

}  // namespace body
}  // namespace convtune
