// How direct_patch_sm90.cuh stores a warpgroup's sums: through shared memory, some filters at a time, from
// where the copy engine takes boxes of filters and positions while the next ones are gathered.
#pragma once

#include "cuda/algorithms/direct_patch_sm90/config.h"
#include "cuda/ptx/wgmma_tf32_registers.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_patch_sm90 {

// The numbers that device code divides by and multiplies with, as constants for certain.
template <DirectPatchSm90 config>
struct Sizes {
  static constexpr int kFilters = config.filters, kStages = config.stages;
  static constexpr int kBlocks = config.blocks(), kSumStages = config.sum_stages();
  static constexpr int kInputBytes = static_cast<int>(config.input_bytes());
  static constexpr int kWeightBytes = config.weight_bytes();
  static constexpr int kStageBytes = static_cast<int>(config.stage_bytes());
  static constexpr int kRowBytes = config.row_bytes();
  static constexpr int kAllPositions = static_cast<int>(config.all_positions());
  static constexpr int kImage = config.conv.p * config.conv.q;
  static constexpr auto kAt = config.smem();  // from the start of shared memory
};

// Filters first_filter to + kStagedFilters - 1 of a warp's 16 positions again, slowly, to where they are
// staged.
template <DirectPatchSm90 config>
__device__ __noinline__ void stage_exact(const float* __restrict__ x, const float* __restrict__ packed,
                                         int first_filter, int first_position, unsigned box, int in_box) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x % 32; i < 16 * DirectPatchSm90::kStagedFilters; i += 32) {
    const int filter = first_filter + i / 16, position = first_position + i % 16;
    if (filter >= a.k || position >= S::kAllPositions) continue;
    const float value = exact_output<config>(x, packed, position / S::kImage, filter,
                                             position % S::kImage / a.q, position % a.q);
    ptx::st_shared(box + DirectPatchSm90::staged_at(i / 16, in_box + i % 16), value);
  }
}

// A warpgroup's sums: `filters` of them from first_filter on, 64 positions. `finite`: a warp's own.
template <DirectPatchSm90 config>
__device__ __forceinline__ void store(const float (&sums)[config.sums()], const ptx::TensorMap* map,
                                      bool in_boxes, const float* __restrict__ x,
                                      const float* __restrict__ packed, float* __restrict__ y,
                                      int first_filter, int first_position, bool finite, unsigned staging,
                                      int consumer, int& staged) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kStaged = DirectPatchSm90::kStagedFilters;
  const int thread = threadIdx.x % 128, lane = thread % 32, group = lane / 4, pair = lane % 4 * 2;
  const int warp = __shfl_sync(0xffffffff, thread / 32, 0), in_box = warp % 2 * 16;
  const unsigned box_of_warp = warp / 2 * DirectPatchSm90::kBoxBytes;
  unsigned places[2][2];  // for the first 8 filters' values
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int b = 0; b < 2; ++b)
      places[i][b] = box_of_warp + DirectPatchSm90::staged_at(pair + b, in_box + group + 8 * i);
  constexpr Packed kPacked = config.packed();
  const float* bias = packed + kPacked.bias_at() + first_filter + pair;
  for_constants<0, config.filters / kStaged>([&](auto round) {
    const unsigned slot = staging + staged % DirectPatchSm90::kSlots * DirectPatchSm90::kSlotBytes;
    ++staged;
    if (warp == 0) ptx::bulk_wait_read_but<DirectPatchSm90::kSlots - 1>();
    ptx::bar_sync(1 + consumer, 128);
#pragma unroll
    for (int j = 0; j < kStaged / 8; ++j)
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float addend = __ldg(bias + round.value * kStaged + 8 * j + b);
#pragma unroll
        for (int i = 0; i < 2; ++i)
          ptx::st_shared(
              slot + places[i][b] + j * 1024,
              finish<config.conv>(sums[(round.value * (kStaged / 8) + j) * 4 + 2 * i + b], addend));
      }
    const int filter = first_filter + round.value * kStaged;
    if (!finite) {
      __syncwarp();
      stage_exact<config>(x, packed, filter, first_position + 16 * warp, slot + box_of_warp, in_box);
    }
    ptx::fence_proxy_async();
    ptx::bar_sync(1 + consumer, 128);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned box = slot + half * DirectPatchSm90::kBoxBytes;
      const int begin = first_position + 32 * half, end = min(begin + 32, S::kAllPositions);
      const int image = begin / S::kImage;
      if (in_boxes && begin < end && warp == 0)
        ptx::store_box_if(map, begin - image * S::kImage, filter, image, box, lane == 0);
      // Stores the positions of the next images; a box cannot begin before its image (an illegal
      // instruction).
      const int position = (in_boxes ? (image + 1) * S::kImage : begin) + lane;
      if (position < end) {
        float* const to =
            y + static_cast<long long>(position / S::kImage) * a.k * S::kImage + position % S::kImage;
#pragma unroll 1
        for (int f = warp; f < kStaged && filter + f < a.k; f += 4)
          to[static_cast<long long>(filter + f) * S::kImage] =
              __uint_as_float(ptx::ld_shared(box + DirectPatchSm90::staged_at(f, position - begin)));
      }
    }
    if (warp == 0) ptx::bulk_commit_group();
  });
}

}  // namespace convtune::direct_patch_sm90
