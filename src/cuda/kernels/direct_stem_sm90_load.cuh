// What a block of direct_stem_sm90.cuh works through, its shared memory, and the warpgroups that load: input
// rows from global memory, rounded to TF32, into the ring of units.
#pragma once

#include "constants.cuh"
#include "direct_stem_sm90.h"
#include "ptx_sm90.cuh"

namespace convtune {
namespace stem {

__device__ inline bool is_finite_tf32(unsigned bits) {
  return (bits & 0x7f800000) != 0x7f800000;
}

// What a block works through: its bands, and so its rows and units, each numbered from 0. A band needs
// halo() units more than it has rows.
template <DirectStemSm90 config>
struct Walk {
  static constexpr int kBandsOfImage = config.p / config.band;
  static constexpr int kUnitsOfBand = config.band + config.halo();
  int bands = (config.bands() - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
              static_cast<int>(gridDim.x);

  __device__ int rows() const { return bands * config.band; }
  __device__ int units() const { return bands * kUnitsOfBand; }
  __device__ int band_id(int band) const {
    return static_cast<int>(blockIdx.x) + band * static_cast<int>(gridDim.x);
  }
  __device__ int first_unit(int row) const { return row + config.halo() * (row / config.band); }
};

// Shared memory, by its addresses there.
template <DirectStemSm90 config>
struct Smem {
  unsigned weights, units, staging, full, done, flags;
  __device__ explicit Smem(unsigned start)
      : weights(start),
        units(weights + static_cast<unsigned>(config.weight_bytes())),
        staging(units + static_cast<unsigned>(config.units_bytes())),
        full(staging + config.staging_bytes()),
        done(full + 8 * config.units),
        flags(done + 8 * config.units) {}
};

__device__ inline void store_shared(unsigned address, unsigned value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ inline unsigned load_shared(unsigned address) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Everything that a loading warpgroup does. `thread` counts those of all of them.
template <DirectStemSm90 config>
__device__ void produce(const float* __restrict__ x, const Smem<config>& smem, int thread) {
  constexpr int kChunks = static_cast<int>(config.unit_chunks());
  constexpr int kLoaders = config.loaders(), kMostAtOnce = 6, kNeeded = (kChunks + kLoaders - 1) / kLoaders;
  constexpr int kBatches = (kNeeded + kMostAtOnce - 1) / kMostAtOnce;  // of a unit
  constexpr int kAtOnce = (kNeeded + kBatches - 1) / kBatches;         // chunks of a thread
  const Walk<config> walk;
  const int steps = walk.units() * kBatches, rows = walk.rows();
  // Batches: all but the oldest are on their way. Small ones are many, or each would wait for memory alone.
  constexpr int kMostChunks = 12, kMostDepth = 8;
  constexpr int kDepth = kMostChunks / kAtOnce < kMostDepth ? kMostChunks / kAtOnce : kMostDepth;
  float values[kDepth][kAtOnce][4];

  const auto load_by = [&](int step, auto batch, auto width) {
    const int unit = step / kBatches, band = walk.band_id(unit / Walk<config>::kUnitsOfBand);
    const int image = band / Walk<config>::kBandsOfImage;
    const int first_row =
        band % Walk<config>::kBandsOfImage * config.band + unit % Walk<config>::kUnitsOfBand;
    const float* from = x + static_cast<long long>(image) * config.c * config.h * config.w;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int chunk = thread + kLoaders * (step % kBatches * kAtOnce + i);
      const int position = chunk % config.plane_chunks(), row = chunk / config.row_chunks();
      const int plane = chunk / config.plane_chunks() % config.planes();
      const int shift = row % config.classes(), phase = row / config.classes() % config.unit_rows();
      const int channel = row / (config.classes() * config.unit_rows());
      const int input_row = first_row * config.stride_h + phase - config.pad_top;
      const int column = (position * config.planes() + plane) * 4 + shift * config.stride_w - config.pad_left;
      const int source = (channel * config.h + input_row) * config.w + column;
      const bool inside = chunk < kChunks && input_row >= 0 && input_row < config.h;
#pragma unroll
      for (int j = 0; j < 4; j += width.value) {
        // Widths divide the row's: all of them are inside, or none.
        const bool there = inside && column + j >= 0 && column + j < config.w;
        float* const to = &values[batch.value][i][j];
        if constexpr (width.value == 4) {
          const float4 got = there ? __ldg(reinterpret_cast<const float4*>(from + source)) : float4{};
          to[0] = got.x, to[1] = got.y, to[2] = got.z, to[3] = got.w;
        } else if constexpr (width.value == 2) {
          const float2 got = there ? __ldg(reinterpret_cast<const float2*>(from + source + j)) : float2{};
          to[0] = got.x, to[1] = got.y;
        } else {
          to[0] = there ? __ldg(from + source + j) : 0.0f;
        }
      }
    }
  };
  constexpr int kWidth = config.load_width();
  const bool aligned = reinterpret_cast<unsigned long long>(x) % (4 * kWidth) == 0;
  const auto load = [&](int step, auto batch) {
    if (kWidth > 1 && aligned)
      load_by(step, batch, Int<kWidth>{});
    else
      load_by(step, batch, Int<1>{});
  };
  // What is loaded some units later is fetched into L2 now: memory takes longer than the batches last.
  constexpr int kPrefetched = 4;
  const auto prefetch = [&](int unit) {
    const int band = walk.band_id(unit / Walk<config>::kUnitsOfBand);
    const int image = band / Walk<config>::kBandsOfImage;
    const int row = (band % Walk<config>::kBandsOfImage * config.band + unit % Walk<config>::kUnitsOfBand) *
                        config.stride_h -
                    config.pad_top;
    const int first = row < 0 ? 0 : row;
    const int end = row + config.unit_rows() > config.h ? config.h : row + config.unit_rows();
    for (int channel = thread; channel < config.c && first < end; channel += kLoaders)
      ptx::prefetch_l2(
          x + ((static_cast<long long>(image) * config.c + channel) * config.h + first) * config.w,
          static_cast<unsigned>(end - first) * config.w * 4u);
  };
  for (int unit = 0; unit < kPrefetched && unit < walk.units(); ++unit) prefetch(unit);
  int freed = 0;  // rows that are known to be done
  const auto store = [&](int step, auto batch) {
    const int unit = step / kBatches, slot = unit % config.units;
    if (step % kBatches == 0 && unit + kPrefetched < walk.units()) prefetch(unit + kPrefetched);
    if (step % kBatches == 0)
      for (; freed < rows && walk.first_unit(freed) <= unit - config.units; ++freed)
        ptx::mbarrier_wait(smem.done + 8 * (freed % config.units), freed / config.units & 1);
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int chunk = thread + kLoaders * (step % kBatches * kAtOnce + i);
      unsigned bits[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        bits[j] = ptx::cvt_rna_tf32(values[batch.value][i][j]);
        finite = finite && is_finite_tf32(bits[j]);
      }
      if (chunk < kChunks)
        asm volatile(
            "st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem.units + (slot * kChunks + chunk) * 16),
            "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3])
            : "memory");
    }
    if (!finite) store_shared(smem.flags + 4 * slot, unit + 1);  // no other unit's number: never cleared
    if (step % kBatches == kBatches - 1) {
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(smem.full + 8 * slot);
    }
  };
  for_constants<0, kDepth - 1>([&](auto first) {
    if (first.value < steps) load(first.value, first);
  });
  for (int step = 0; step < steps; step += kDepth)
    for_constants<0, kDepth>([&](auto batch) {
      constexpr int kAhead = kDepth - 1;
      const int now = step + batch.value;
      if (now + kAhead < steps) load(now + kAhead, Int<(batch.value + kAhead) % kDepth>{});
      if (now < steps) store(now, batch);
    });
}

}  // namespace stem
}  // namespace convtune
