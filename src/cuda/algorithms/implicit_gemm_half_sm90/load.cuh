// The warpgroup of implicit_gemm_half_sm90.cuh that loads: pixels by TMA, where one instruction brings those
// of a tile for a tap and some channels, padding and all; packed weights by bulk copies, of which each block
// of a cluster brings its part to all.
#pragma once

#include "cuda/algorithms/implicit_gemm_half_sm90/config.h"
#include "cuda/ptx/cluster_send.cuh"
#include "cuda/ptx/fetch.cuh"
#include "cuda/tile/lying.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::implicit_gemm_half_sm90 {

struct Maps {
  ptx::TensorMap x;
};
struct MapsWithCache : Maps {
  ptx::TensorMap cache;
};
struct MapsWithWeights : Maps {
  ptx::TensorMap w;
};
template <bool kWithCache, bool kWithWeights>
struct MapsThat {
  using Are = Maps;
};
template <>
struct MapsThat<true, false> {
  using Are = MapsWithCache;
};
template <>
struct MapsThat<false, true> {
  using Are = MapsWithWeights;
};
template <ImplicitGemmHalfSm90 config>
using MapsOf = typename MapsThat<(config.cache > 0), (config.lying > 0)>::Are;

// A block's place, and the tiles that it takes:
//   for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step)
template <ImplicitGemmHalfSm90 config>
struct Place : TilesOfRun<config> {
  static constexpr int kBlocks = config.cluster_blocks();
  int rank = 0;  // in the cluster
  int first_tile = static_cast<int>(blockIdx.x) / kBlocks, tile_step = static_cast<int>(gridDim.x) / kBlocks;
  int first_step = 0, end_step = constant<config.steps()>;

  __device__ explicit Place(int images) : TilesOfRun<config>(images) {
    if constexpr (kBlocks > 1) rank = static_cast<int>(ptx::cluster_rank());
    if constexpr (config.split > 1)
      first_step = config.first_step(rank), end_step = config.first_step(rank + 1);
  }
};

// The pixels of y, and the images, of a run.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ int pixels_of_run(int images) {
  constexpr int kPixels = static_cast<int>(config.pixels());
  return config.any_batch ? images * (kPixels / config.conv.n) : kPixels;
}
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ int images_of_run(int images) {
  return config.any_batch ? images : config.conv.n;
}

// Who arrives at a stage's barriers. Without TMA all threads that load do, besides what brings the weights.
template <ImplicitGemmHalfSm90 config>
struct Arrivals {
  static constexpr int kFull = config.aligned ? 1 : 129;
  static constexpr int kEmpty = 4 * (config.ping_pong ? 1 : config.consumers) * config.cluster;  // warps
};

template <ImplicitGemmHalfSm90 config>
__device__ void bring_weights(const MapsOf<config>& maps, const unsigned* __restrict__ packed,
                              const Place<config>& place, int tile, int step, unsigned to, unsigned full,
                              bool mine) {
  if constexpr (config.lying > 0) {
    constexpr HalfGemmTiles kTiles = config.tile_order();
    constexpr HalfGemmSteps kSteps = config.step_order();
    const int group = kTiles.group(tile), filter = kTiles.first_filter(tile);
    if constexpr (config.turned())
      bring_lying_weights<config, config.weight_blocks()>(
          &maps.w, group, filter - group * kTiles.group_filters, kSteps.tap(step), kSteps.first_channel(step),
          place.rank, to, full, mine);
    else
      bring_lying_rows<config, config.filters>(&maps.w, filter, kSteps.tap(step), kSteps.first_channel(step),
                                               place.rank, to, full, mine);
    return;
  }
  constexpr int kBlockBytes = config.weight_bytes(), kPart = kBlockBytes / config.cluster;
  const int block = tile % constant<config.filter_blocks()>;
  const char* const from = reinterpret_cast<const char*>(packed) +
                           (static_cast<long long>(block) * constant<config.steps()> + step) * kBlockBytes;
  if constexpr (config.cluster > 1)
    ptx::bulk_copy_to_all_if(to + place.rank * kPart, from + place.rank * kPart, kPart, full,
                             (1u << config.cluster) - 1, mine);
  else
    ptx::bulk_copy_to_shared_if(to, from, kPart, full, mine);
}

// A tap of a tile of one frame, from the tensor that has the frame where the tap is.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ void load_frame(const MapsOf<config>& maps, unsigned to,
                                           const ImplicitGemmHalfSm90::Pixel& first, int step, unsigned full,
                                           bool mine) {
  constexpr HalfGemmSteps kSteps = config.step_order();
  const int frame = first.frame + kSteps.frame(step);
  const bool before = frame < 0;
  ptx::load_frame_pixels_if(to, before ? &maps.cache : &maps.x, kSteps.first_channel(step), first.column,
                            first.row, before ? frame + config.cache : frame, first.image,
                            kSteps.column(step), kSteps.row(step), 0, full, mine);
}

// Asks for what describes x, and for a block's share of the weights to be brought into L2, while the kernel
// in front still works: layers of few pixels wait for little else. Nothing is read before that kernel has
// ended.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ void ask_early(const MapsOf<config>& maps, const void* packed, int images) {
  constexpr int kBlockBytes = config.weight_bytes();
  const Place<config> place(images);
  ptx::fetch_map(&maps.x);
  const int block = place.first_tile % constant<config.filter_blocks()>;
  const char* const from = static_cast<const char*>(packed) +
                           static_cast<long long>(block) * constant<config.steps()> * kBlockBytes;
#pragma unroll 1
  for (int step = place.first_step; step < place.end_step; ++step)
    ptx::prefetch_l2_if(from + static_cast<long long>(step) * kBlockBytes, kBlockBytes, true);
}

// By one warp, of which one thread does it.
template <ImplicitGemmHalfSm90 config>
__device__ void load(const MapsOf<config>& maps, const unsigned* __restrict__ packed, unsigned smem,
                     int images) {
  constexpr auto kAt = config.smem();
  constexpr HalfGemmTiles kTiles = config.tile_order();
  constexpr HalfGemmSteps kSteps = config.step_order();
  const Place<config> place(images);
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.stages> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    // A cluster's last block may have none: whatever it brings is not stored.
    const int pixel = lesser(kTiles.first_pixel(tile, place.rank), pixels_of_run<config>(images) - 1);
    const ImplicitGemmHalfSm90::Pixel first = config.first_tap(pixel);
#pragma unroll 1
    for (int step = place.first_step; step < place.end_step; ++step) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + ring.slot * constant<config.stage_bytes()>;
      const unsigned full = ring.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, constant<config.stage_bytes()>, mine);
      if constexpr (config.reads_once())
        ptx::load_rows_once_if(to, &maps.x, kSteps.first_channel(step), pixel, full, mine);
      else if constexpr (config.pointwise())
        ptx::load_rows_if(to, &maps.x, kSteps.first_channel(step), pixel, full, mine);
      else if constexpr (config.cache > 0)
        load_frame<config>(maps, to, first, step, full, mine);
      else if constexpr (config.conv.has_depth())
        ptx::load_frame_pixels_if(to, &maps.x, kSteps.first_channel(step), first.column, first.row,
                                  first.frame, first.image, kSteps.column(step), kSteps.row(step),
                                  kSteps.frame(step), full, mine);
      else if constexpr (config.conv.groups > 1)
        ptx::load_group_pixels_if(to, &maps.x, kSteps.first_channel(step), first.column, first.row,
                                  first.image, kTiles.group(tile), kSteps.column(step), kSteps.row(step),
                                  full, mine);
      else
        ptx::load_pixels_if(to, &maps.x, kSteps.first_channel(step), first.column, first.row, first.image,
                            kSteps.column(step), kSteps.row(step), full, mine);
      bring_weights<config>(maps, packed, place, tile, step, to + constant<config.input_bytes()>, full, mine);
      ring.next();
    }
  }
}

// The cache as a tensor.
template <ImplicitGemmHalfSm90 config>
__device__ constexpr ConvExtents cache_of() {
  ConvExtents before = config.conv;
  before.d = config.cache;
  return before;
}

// As load(), for an x that may begin anywhere, by a warpgroup: an element at a time.
template <ImplicitGemmHalfSm90 config>
__device__ void load_anywhere(const MapsOf<config>& maps, const unsigned short* __restrict__ x,
                              const unsigned short* __restrict__ cache, const unsigned* __restrict__ packed,
                              unsigned smem, int images) {
  constexpr auto kAt = config.smem();
  constexpr HalfGemmTiles kTiles = config.tile_order();
  constexpr HalfGemmSteps kSteps = config.step_order();
  constexpr ConvExtents a = config.conv;
  constexpr HalfGemmWeights kWeights = config.weights();
  constexpr int kPieces = config.pieces(), kRowBytes = config.row_bytes();
  const Place<config> place(images);
  const int thread = threadIdx.x % 128;
  Ring<config.stages> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    const int first_pixel = kTiles.first_pixel(tile, place.rank);
#pragma unroll 1
    for (int step = place.first_step; step < place.end_step; ++step) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + ring.slot * constant<config.stage_bytes()>;
      const unsigned full = ring.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, constant<config.weight_bytes()>, thread == 0);
      bring_weights<config>(maps, packed, place, tile, step, to + constant<config.input_bytes()>, full,
                            thread == 0);
#pragma unroll 1
      for (int i = thread; i < kTiles.rows * kPieces; i += 128) {
        const int row = i / kPieces, piece = i % kPieces;
        ImplicitGemmHalfSm90::Pixel at = config.first_tap(first_pixel + row);
        at.row += kSteps.row(step), at.column += kSteps.column(step);
        at.frame += kSteps.frame(step);
        const int channel = kSteps.first_channel(step) + 8 * piece;
        const bool inside = at.image < images_of_run<config>(images) && at.frame >= -config.cache &&
                            at.frame < a.d && at.row >= 0 && at.row < a.h && at.column >= 0 &&
                            at.column < a.w && channel < constant<config.depth()>;
        unsigned words[4] = {0, 0, 0, 0};
        if (inside) {
          const int first_channel = kTiles.group(tile) * constant<config.depth()> + channel;
          const unsigned short* const from =
              config.cache > 0 && at.frame < 0
                  ? cache + cache_of<config>().input_offset(at.image, first_channel, at.frame + config.cache,
                                                            at.row, at.column)
                  : x + a.input_offset(at.image, first_channel, at.frame, at.row, at.column);
#pragma unroll
          for (int j = 0; j < 4; ++j) words[j] = from[2 * j] | static_cast<unsigned>(from[2 * j + 1]) << 16;
        }
        ptx::st_shared_v4(to + row * kRowBytes + 16 * kWeights.exchanged(row, piece), words);
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(full);
      ring.next();
    }
  }
}

}  // namespace convtune::implicit_gemm_half_sm90
