// How direct_stem_sm80.cuh stores the sums of a block: straight from registers, through shared memory, or
// computed again.
#pragma once

#include "cuda/algorithms/direct_stem_sm80/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_stem_sm80 {

// The sums of a warp: [16 filters][8 pixels][a thread's 4].
template <DirectStemSm80 config>
using Sums = float[config.filter_tiles()][config.tiles()][4];

// Locates a warp's part of the block.
struct Part {
  int filter_warp, filter, row, column;
};
template <DirectStemSm80 config>
__device__ __forceinline__ Part part_of(int warp) {
  const int filter_warp = warp % config.filter_warps;
  return {filter_warp, filter_warp * config.warp_filters,
          warp / config.filter_warps % config.row_warps * config.warp_rows,
          warp / (config.filter_warps * config.row_warps) * config.warp_columns * 8};
}

// Straight from the registers: 4 threads write 8 neighbouring pixels, which is a sector if rows are aligned.
template <DirectStemSm80 config>
__device__ __forceinline__ void store_direct(const Sums<config>& sums, const float* __restrict__ bias,
                                             float* __restrict__ y, const Place& at, int warp, int lane) {
  constexpr ConvExtents a = config.conv;
  const Part part = part_of<config>(warp);
  const bool aligned = a.q % 2 == 0 && reinterpret_cast<unsigned long long>(y) % 8 == 0;
#pragma unroll
  for (int i = 0; i < config.filter_tiles(); ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int filter = at.filter + part.filter + 16 * i + 8 * half + lane / 4;
      if (a.k % config.filters() != 0 && filter >= a.k) continue;
      const float addend = __ldg(bias + filter);
      float* const to =
          y + a.output_offset(at.frame / a.z, filter, at.frame % a.z, at.p + part.row, at.q + part.column);
#pragma unroll
      for (int tile = 0; tile < config.tiles(); ++tile) {
        const int row = tile / config.warp_columns, column = tile % config.warp_columns * 8 + lane % 4 * 2;
        if (at.p + part.row + row >= a.p || at.q + part.column + column >= a.q) continue;
        const float two[] = {finish<config.conv>(sums[i][tile][2 * half], addend),
                             finish<config.conv>(sums[i][tile][2 * half + 1], addend)};
        float* const pair = to + row * a.q + column;
        if (aligned) {
          *reinterpret_cast<float2*>(pair) = make_float2(two[0], two[1]);
        } else {
          pair[0] = two[0];
          if (at.q + part.column + column + 1 < a.q) pair[1] = two[1];
        }
      }
    }
}

// Through shared memory, for a block that has whole rows: a filter's band is one piece of the output, and is
// written in one piece.
template <DirectStemSm80 config>
__device__ __forceinline__ void store_staged(const Sums<config>& sums, float* staging,
                                             const float* __restrict__ bias, float* __restrict__ y,
                                             const Place& at, int warp, int lane) {
  constexpr ConvExtents a = config.conv;
  const Part part = part_of<config>(warp);
  constexpr int kPitch = config.staging_pitch(), kTiles = config.staged_tiles(), kRun = config.run();
  const int floats = min(config.band(), a.p - at.p) * a.q;  // per piece
#pragma unroll
  for (int first = 0; first < config.filter_tiles(); first += kTiles) {
    __syncthreads();  // the previous content is read
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int staged = (part.filter_warp * kTiles + i) * 16 + half * 8 + lane / 4;
        const int filter = at.filter + part.filter + 16 * (first + i) + 8 * half + lane / 4;
        const float addend = a.k % config.filters() == 0 || filter < a.k ? __ldg(bias + filter) : 0.0f;
        float* const mine = staging + staged * kPitch + part.row * a.q + part.column + lane % 4 * 2;
#pragma unroll
        for (int tile = 0; tile < config.tiles(); ++tile) {
          const int column = tile % config.warp_columns * 8;
          const int left = a.q - part.column - column - lane % 4 * 2;
          const float two[] = {finish<config.conv>(sums[first + i][tile][2 * half], addend),
                               finish<config.conv>(sums[first + i][tile][2 * half + 1], addend)};
          float* const to = mine + tile / config.warp_columns * a.q + column;
          // Beyond the row's end only the last 8 pixels can be, or so, and what is known is not asked.
          const bool whole = column + 8 + config.columns() - a.q <= config.warp_columns * 8;
          if constexpr (a.q % 2 == 0) {
            if (whole || left > 0) *reinterpret_cast<float2*>(to) = make_float2(two[0], two[1]);
          } else {
            if (whole || left > 0) to[0] = two[0];
            if (whole || left > 1) to[1] = two[1];
          }
        }
      }
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < config.filter_warps * kTiles * 16; i += config.warps()) {
      const int filter = at.filter + i / (kTiles * 16) * config.warp_filters + first * 16 + i % (kTiles * 16);
      if (a.k % config.filters() != 0 && filter >= a.k) continue;
      const float* const from = staging + i * kPitch;
      float* const to = y + a.output_offset(at.frame / a.z, filter, at.frame % a.z, at.p, 0);
      if (a.q % 4 == 0 && reinterpret_cast<unsigned long long>(y) % 16 == 0) {
#pragma unroll
        for (int j = 0; j < kRun; j += 128)
          if (j + lane * 4 < floats)
            *reinterpret_cast<float4*>(to + j + lane * 4) =
                *reinterpret_cast<const float4*>(from + j + lane * 4);
      } else {
        // A warp writes 32 floats from a sector's start on: only the ends of a piece are parts of sectors.
        // (4 floats a thread, staged as the output is aligned, took longer: the ends are many instructions.)
        const int mine = lane - static_cast<int>(reinterpret_cast<unsigned long long>(to) / 4 % 8);
#pragma unroll
        for (int j = 0; j < kRun + 7; j += 32)
          if ((j > 0 || mine >= 0) && j + mine < floats) to[j + mine] = from[j + mine];
      }
    }
  }
}

// All outputs of the block, slowly.
template <DirectStemSm80 config>
__device__ __forceinline__ void store_exact(const float* __restrict__ x, const float* __restrict__ packed,
                                            float* __restrict__ y, const Place& at) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPixels = config.band() * config.columns();
#pragma unroll 1
  for (int i = threadIdx.x; i < config.filters() * kPixels; i += config.threads()) {
    const int filter = at.filter + i / kPixels, p = at.p + i % kPixels / config.columns(),
              q = at.q + i % config.columns();
    if (filter >= a.k || p >= a.p || q >= a.q) continue;
    const int image = at.frame / a.z, z = at.frame % a.z;
    y[a.output_offset(image, filter, z, p, q)] = exact_output<config>(x, packed, image, filter, p, q, 0, z);
  }
}

}  // namespace convtune::direct_stem_sm80
