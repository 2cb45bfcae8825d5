// The warpgroup of direct_body_half_sm90.cuh that loads. One warp brings x by TMA, where one instruction is a
// box of pixels of one phase, with zeros outside of the image; another brings weights by bulk copies, of
// which each block of a cluster brings its part to all. Each runs ahead as far as its own ring goes.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/config.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/lying.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::direct_body_half_sm90 {

// The tensors' maps. A problem without a residual, or rows of y that TMA cannot store (no multiples of 16
// bytes), have x's map in its place.
struct Maps {
  ptx::TensorMap x, y, residual;
};
// With frames before x's first in a tensor of their own: tiles are of one frame then, and so is a stage.
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
template <DirectBodyHalfSm90 config>
using MapsOf = typename MapsThat<(config.cache > 0), (config.lying > 0)>::Are;

// The map of the tensor that has the frame, which becomes one of that tensor's.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ const ptx::TensorMap* map_of_frame(const MapsOf<config>& maps, int& frame) {
  if constexpr (config.cache > 0)
    if (frame < 0) {
      frame += config.cache;
      return &maps.cache;
    }
  return &maps.x;
}

// A block's place, and the tiles that it takes:
//   for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step)
template <DirectBodyHalfSm90 config>
struct Place : TilesOfRun<config> {
  int rank = 0;  // in the cluster
  int first_tile = static_cast<int>(blockIdx.x) / config.cluster;
  int tile_step = static_cast<int>(gridDim.x) / config.cluster;

  __device__ explicit Place(int images) : TilesOfRun<config>(images) {
    if constexpr (config.cluster > 1) rank = static_cast<int>(ptx::cluster_rank());
  }
};

// The images, or frames, of a run that outputs are counted in.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ int batch_of_run(int images) {
  return of_run<config>(images, [](const auto& a) { return a.batch(); });
}

// The frames of the filter that a tile's sums have.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ DirectBodyHalfSm90::Frames frames_that_count(int tile) {
  if constexpr (config.skips_frames()) return config.tile_frames(tile);
  return {0, config.conv.t};
}

// The filter's first row and column that they have.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ DirectBodyHalfSm90::Taps taps_that_count(int tile) {
  if constexpr (config.conv.lies.uneven()) return config.tile_taps(tile);
  return {0, 0};
}

// Positions that residues which begin late leave out: of a tile's, or of any set's.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ int late_rows(int set) {
  if constexpr (config.conv.lies.uneven()) return late_rows_of(config.conv, set);
  return 0;
}
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ int late_columns(int set) {
  if constexpr (config.conv.lies.uneven()) return late_columns_of(config.conv, set);
  return 0;
}

// The warps of the warpgroup: one for x, one for weights. Where x begins anywhere, all but that one load x.
inline constexpr int kWeightsWarp = 1, kLoadingThreads = 96;

// Who arrives at barriers: warps that have read.
template <DirectBodyHalfSm90 config>
struct Arrivals {
  static constexpr int kEmpty = 4 * (config.ping_pong ? 1 : config.consumers);
  static constexpr int kWeightsEmpty = kEmpty * config.cluster;
};

// A tile's corner in the positions of x, from which on residues that begin late have theirs.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ DirectBodyHalfSm90::Corner input_corner(int tile, int rank) {
  constexpr BodyTiles kTiles = config.tile_order();
  DirectBodyHalfSm90::Corner at = kTiles.corner(tile, rank);
  at.row += late_rows<config>(at.set), at.column += late_columns<config>(at.set);
  return at;
}

// By one warp, of which one thread does it.
template <DirectBodyHalfSm90 config>
__device__ void load_inputs(const MapsOf<config>& maps, unsigned smem, int images) {
  constexpr auto kAt = config.smem();
  constexpr BodyAxis kRows = config.vertical(), kColumns = config.horizontal();
  constexpr int kAbove = kRows.before(), kBefore = kColumns.before();
  constexpr BodyStages kStages = config.stage_order();
  const Place<config> place(images);
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.input_stages> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    // A cluster's last block may have none: it brings zeros, which nobody stores.
    const DirectBodyHalfSm90::Corner at = input_corner<config>(tile, place.rank);
    const DirectBodyHalfSm90::Frames frames = frames_that_count<config>(tile);
#pragma unroll 1
    for (int stage = 0; stage < constant<config.stages()>; ++stage) {
      if (constant<config.skips_frames()> && !frames.has(kStages.frame(stage))) continue;
      ring.wait_empty(smem + kAt.empty);
      if constexpr (config.prefetches_residual())
        for (int filter = at.filter; stage == 0 && filter < at.filter + constant<config.filters()>;
             filter += 64)
          ptx::prefetch_box_if(&maps.residual, filter, at.column, at.part(), at.row, at.image, mine);
      const unsigned to = smem + kAt.inputs + ring.slot * constant<config.input_stage_bytes()>;
      const unsigned full = ring.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, constant<config.input_bytes()>, mine);
      const int first_row = kRows.phase(kStages.first_row(stage));
      int image = kStages.input_image(stage, at.image);
      const ptx::TensorMap* const map = map_of_frame<config>(maps, image);
      const int column =
          (at.column - kBefore) * kColumns.stride + kColumns.phase(kStages.first_column(stage));
      if constexpr (config.pixels_first()) {
        for (int i = 0; i < constant<config.input_bytes() / config.block_bytes()>; ++i)
          ptx::load_box_if(to + i * constant<config.block_bytes()>, &maps.x, at.column + i * 64,
                           kStages.first_channel(stage), at.image, 0, 0, full, mine);
      } else if constexpr (config.splits_rows())
        ptx::load_box_if(to, &maps.x, kStages.first_channel(stage), column, first_row, at.row - kAbove,
                         at.image, full, mine);
      else if constexpr (config.reads_once())
        ptx::load_box_once_if(to, map, kStages.first_channel(stage), column, at.part(),
                              (at.row - kAbove) * kRows.stride + first_row, image, full, mine);
      else
        ptx::load_box_if(to, map, kStages.first_channel(stage), column, at.part(),
                         (at.row - kAbove) * kRows.stride + first_row, image, full, mine);
      ring.next();
    }
  }
}

// Channels of a tile's pixels, where these come first.
template <DirectBodyHalfSm90 config>
__device__ void load_pixel_rows(const unsigned short* __restrict__ x, unsigned to,
                                const DirectBodyHalfSm90::Corner& at, int first_channel, int thread,
                                int images) {
  constexpr int kPixels = config.horizontal().input, kDepth = config.depth();
#pragma unroll 1
  for (int i = thread; i < constant<config.input_bytes() / 16>; i += kLoadingThreads) {
    const int row = i / 8, piece = i % 8, channel = row % config.channels;
    const int pixel = at.column + row / config.channels * 64 + piece * 8;
    unsigned words[4] = {0, 0, 0, 0};
    if (at.image < batch_of_run<config>(images) && first_channel + channel < kDepth) {
      const unsigned short* const from =
          x + (1LL * at.image * kDepth + first_channel + channel) * kPixels + pixel;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (pixel + j < kPixels) words[j / 2] |= static_cast<unsigned>(from[j]) << j % 2 * 16;
    }
    ptx::st_shared_v4(to + row * 128 + 16 * (piece ^ row % 8), words);
  }
}

// As above, for an x that may begin anywhere, by kLoadingThreads: `thread` of them, an element at a time.
template <DirectBodyHalfSm90 config>
__device__ void load_inputs_anywhere(const unsigned short* __restrict__ x,
                                     const unsigned short* __restrict__ cache, unsigned smem, int thread,
                                     int images) {
  constexpr auto kAt = config.smem();
  constexpr BodyAxis kRows = config.vertical(), kColumns = config.horizontal();
  constexpr int kAbove = kRows.before(), kBefore = kColumns.before(), kPitch = config.pitch(),
                kBoxRows = config.box_rows();
  constexpr BodyStages kStages = config.stage_order();
  constexpr int kPieces = config.pieces(), kDepth = config.depth();
  constexpr int kPixelPieces = config.pixels_first() ? 0 : config.box_pixels() * kPieces;
  const Place<config> place(images);
  Ring<config.input_stages> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    const DirectBodyHalfSm90::Corner at = input_corner<config>(tile, place.rank);
    const DirectBodyHalfSm90::Frames frames = frames_that_count<config>(tile);
#pragma unroll 1
    for (int stage = 0; stage < constant<config.stages()>; ++stage) {
      if (constant<config.skips_frames()> && !frames.has(kStages.frame(stage))) continue;
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.inputs + ring.slot * constant<config.input_stage_bytes()>;
      const int row_phase = kRows.phase(kStages.first_row(stage));
      const int column_phase = kColumns.phase(kStages.first_column(stage));
      if constexpr (config.pixels_first())
        load_pixel_rows<config>(x, to, at, kStages.first_channel(stage), thread, images);
#pragma unroll 1
      for (int i = thread; i < kPixelPieces; i += kLoadingThreads) {
        const int pixel = i / kPieces, piece = i % kPieces, line = pixel / kPitch;
        const int image = kStages.input_image(stage, at.image + line / kBoxRows);
        const int row = (at.row - kAbove + line % kBoxRows) * kRows.stride + row_phase;
        const int column = (at.column - kBefore + pixel % kPitch) * kColumns.stride + column_phase;
        const int channel = kStages.first_channel(stage) + 8 * piece;
        const bool inside = of_run<config>(images, [&](const auto& one) {
          return at.volume < one.volumes() && image >= -one.cache && image < one.input_batch() && row >= 0 &&
                 row < kRows.input && column >= 0 && column < one.horizontal().input && channel < kDepth;
        });
        unsigned words[4] = {0, 0, 0, 0};
        if (inside) {
          const bool in_cache = config.cache > 0 && image < 0;
          const int frames = in_cache ? config.cache : config.input_batch();
          const int frame = in_cache ? image + config.cache : image;
          const long long at_pixel =
              ((1LL * at.volume * frames + frame) * kRows.input + row) * kColumns.input + column;
          const unsigned short* const from =
              (in_cache ? cache : x) + (at_pixel * config.conv.groups + at.group) * kDepth + channel;
#pragma unroll
          for (int j = 0; j < 4; ++j) words[j] = from[2 * j] | static_cast<unsigned>(from[2 * j + 1]) << 16;
        }
        ptx::st_shared_v4(to + pixel * config.row_bytes() + 16 * config.exchanged(pixel, piece), words);
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(ring.barrier(smem + kAt.full));
      ring.next();
    }
  }
}

// By one warp, of which one thread does it. Weights that stay come once.
template <DirectBodyHalfSm90 config>
__device__ void load_weights(const MapsOf<config>& maps, const unsigned* __restrict__ packed, unsigned smem,
                             int images) {
  constexpr auto kAt = config.smem();
  constexpr int kBytes = config.weight_bytes(), kPart = kBytes / config.cluster;
  constexpr int kSteps = config.steps(), kFilterTiles = config.filter_tiles();
  const Place<config> place(images);
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.weight_stages> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    const char* const from =
        reinterpret_cast<const char*>(packed) + 1LL * (tile % kFilterTiles) * kSteps * kBytes;
    const DirectBodyHalfSm90::Frames frames = frames_that_count<config>(tile);
    const DirectBodyHalfSm90::Taps taps = taps_that_count<config>(tile);
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      if (constant<config.skips_frames()> && !frames.has(config.step_frame(step))) continue;
      if constexpr (config.conv.lies.uneven())
        if (!taps.has(step / config.conv.s % config.conv.r, step % config.conv.s)) continue;
      ring.wait_empty(smem + kAt.weights_empty);
      const unsigned to = smem + kAt.weights + ring.slot * kBytes;
      const unsigned full = ring.barrier(smem + kAt.weights_full);
      ptx::mbarrier_arrive_expect_if(full, kBytes, mine);
      if constexpr (config.lying > 0) {
        const DirectBodyHalfSm90::Corner at = config.corner(tile, place.rank);
        const int channel = step / config.taps() * config.channels;
        if constexpr (config.turned()) {
          const int residue = config.sets() > 1 && config.conv.groups == 1 ? at.set : 0;
          bring_lying_weights<config, config.filters() / LyingWeights::kBlock>(
              &maps.w, at.group, residue * config.set_filters() + at.filter, step % config.taps(), channel,
              place.rank, to, full, mine);
        } else {
          constexpr BodyWeights kWeights = config.weights();
          bring_lying_rows<config, config.filters()>(&maps.w, at.group * config.set_filters() + at.filter,
                                                     kWeights.tap_of(step % config.taps()), channel,
                                                     place.rank, to, full, mine);
        }
      } else if constexpr (config.cluster > 1)
        ptx::bulk_copy_to_all_if(to + place.rank * kPart, from + step * kBytes + place.rank * kPart, kPart,
                                 full, (1u << config.cluster) - 1, mine);
      else
        ptx::bulk_copy_to_shared_if(to, from + step * kBytes, kPart, full, mine);
      ring.next();
    }
    if constexpr (config.weights_stay()) break;
  }
}

}  // namespace convtune::direct_body_half_sm90
