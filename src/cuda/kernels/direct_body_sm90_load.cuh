// What a block of direct_body_sm90.cuh works through, its shared memory, and the warpgroup that loads: three
// warps bring input, rounded to TF32, the fourth brings packed weights.
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
  unsigned weights, stages, staging, loader_table, output_table, full, done, weights_full, weights_done,
      flags;
  __device__ explicit Smem(unsigned start)
      : weights(start),
        stages(weights + S::kWeightStages * S::kWeightBytes),
        staging(stages + S::kStages * S::kStageBytes),
        loader_table(staging + config.staging_bytes()),
        output_table(loader_table + config.loader_table_bytes()),
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

// Everything that a thread that loads input does, one of kLoaders.
template <DirectBodySm90 config>
__device__ void load_input(const float* __restrict__ x, const Smem<config>& smem, int thread) {
  using S = Sizes<config>;
  constexpr Conv2dExtents a = config.conv;
  constexpr bool kPatches = config.patches();
  constexpr int kLoaders = DirectBodySm90::kLoaders, kPlanePixels = a.h * a.w;
  constexpr int kUnitChunks = config.loader_chunks();  // of this thread
  constexpr int kStageUnits = config.stage_units(), kUnits = config.units();
  constexpr int kNeeded = kUnitChunks * kStageUnits;
  // Batches: all but the oldest are on their way.
  constexpr int kMostInFlight = config.threads() > 384 ? 12 : 18, kMostAtOnce = 6;
  constexpr int kBatches = (kNeeded + kMostAtOnce - 1) / kMostAtOnce;  // of a stage
  constexpr int kAtOnce = (kNeeded + kBatches - 1) / kBatches;         // chunks of a thread
  constexpr int kDepth = kMostInFlight / kAtOnce;
  const Walk<config> walk;
  const int steps = walk.tiles * S::kBlocks * kBatches;
  const unsigned table = smem.loader_table + 4 * thread;  // entries of mine alone
  const bool aligned = kPatches && a.w % 4 == 0 && reinterpret_cast<unsigned long long>(x) % 16 == 0;
  float values[kDepth][kAtOnce][4];

  // Where loading is: its next batch, block of the sum, tile.
  int load_batch = 0, load_block = 0, load_tile = 0;
  const float* image = x;
  const auto load = [&](auto slot) {
    if (load_batch == 0 && load_block == 0) {
      const int first = walk.first_position(load_tile);
      const int first_image = first / S::kImagePositions / S::kStrips;
      image = x + static_cast<long long>(first_image) * (a.c * kPlanePixels);
#pragma unroll 1
      for (int i = 0; i < kUnitChunks; ++i)
        store_shared(table + 4 * kLoaders * i,
                     static_cast<unsigned>(chunk_source<config>(thread + kLoaders * i, first, first_image)));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int item = load_batch * kAtOnce + i;
      const int unit = load_block * kStageUnits + item / kUnitChunks;
      int source = -1;
      if (item < kNeeded && unit < kUnits)
        source = static_cast<int>(load_shared(table + 4 * kLoaders * (item % kUnitChunks)));
      float(&to)[4] = values[slot.value][i];
      if constexpr (kPatches) {
        const float* from =
            image + static_cast<long long>(unit / a.r) * kPlanePixels + unit % a.r * a.w + source;
        if (aligned) {
          const float4 got = source >= 0 ? __ldg(reinterpret_cast<const float4*>(from)) : float4{};
          to[0] = got.x, to[1] = got.y, to[2] = got.z, to[3] = got.w;
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j) to[j] = source >= 0 ? __ldg(from + j) : 0.0f;
        }
      } else {
        const float* from = image + static_cast<long long>(unit) * 4 * kPlanePixels + source;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          to[j] = source >= 0 && (a.c % 4 == 0 || unit * 4 + j < a.c) ? __ldg(from + j * kPlanePixels) : 0.0f;
      }
    }
    if (++load_batch == kBatches) {
      load_batch = 0;
      if (++load_block == S::kBlocks) load_block = 0, ++load_tile;
    }
  };

  Ring<S::kStages> ring;
  int store_batch = 0, stage = 0;
  float largest = 0;  // of the stage's numbers; NaN where one is
  const auto store = [&](auto slot) {
    if (store_batch == 0 && stage >= S::kStages)
      ptx::mbarrier_wait(smem.done + 8 * ring.slot, ring.parity ^ 1);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int item = store_batch * kAtOnce + i;
      const int chunk = thread + kLoaders * (item % kUnitChunks), unit = item / kUnitChunks;
      unsigned bits[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float value = values[slot.value][i][j];
        asm("max.NaN.f32 %0, %0, %1;" : "+f"(largest) : "f"(fabsf(value)));
        bits[j] = ptx::cvt_rna_tf32(value);
      }
      int to = unit * S::kPlane + chunk;
      if constexpr (kPatches) {
        constexpr int kOfPosition = config.unit_numbers() / 4;
        to = (unit * kOfPosition + chunk % kOfPosition) * S::kPlane + chunk / kOfPosition;
      }
      if (item < kNeeded && chunk < S::kUnitChunks)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem.stages +
                                                                      ring.slot * S::kStageBytes + to * 16),
                     "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
                     : "memory");
    }
    if (++store_batch < kBatches) return;
    // What rounds to infinity is flagged too. No other stage has this number: it is never cleared.
    if (!(largest < 3.402e38f)) store_shared(smem.flags + 4 * ring.slot, stage + 1);
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(smem.full + 8 * ring.slot);
    store_batch = 0, largest = 0, ++stage;
    ring.next();
  };

  for_constants<0, kDepth - 1>([&](auto first) {
    if (first.value < steps) load(first);
  });
  for (int step = 0; step < steps; step += kDepth)
    for_constants<0, kDepth>([&](auto slot) {
      constexpr int kAhead = kDepth - 1;
      if (step + slot.value + kAhead < steps) load(Int<(slot.value + kAhead) % kDepth>{});
      if (step + slot.value < steps) store(slot);
    });
}

}  // namespace body
}  // namespace convtune
