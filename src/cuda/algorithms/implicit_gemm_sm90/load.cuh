// The warpgroup of implicit_gemm_sm90.cuh that loads: numbers of x by asynchronous copies, of which each
// thread has the same pixels for many channels, so that all of a step are one address and constants; packed
// weights by bulk copies, of which each block of a cluster brings its part to all.
#pragma once

#include "cuda/algorithms/implicit_gemm_sm90/config.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::implicit_gemm_sm90 {

// A block's place, and the tiles that it takes, from the last one on where the launch says so:
//   for (int index = place.first; index < place.kTiles; index += place.step) .. place.tile(index)
template <ImplicitGemmSm90 config>
struct Place {
  static constexpr int kTiles = static_cast<int>(config.tiles()), kBlocks = config.cluster_blocks();
  int rank = 0;  // in the cluster
  int first = static_cast<int>(blockIdx.x) / kBlocks, step = static_cast<int>(gridDim.x) / kBlocks;
  int first_step = 0, end_step = constant<config.steps()>;
  int backwards;

  __device__ int tile(int index) const { return backwards ? kTiles - 1 - index : index; }
  // Its steps of a tile.
  static constexpr bool kOfTile = config.conv.lies.whole_h > 0;
  __device__ int first_of(int tile) const {
    return kOfTile ? config.first_step(tile, config.split > 1 ? rank : 0) : first_step;
  }
  __device__ int end_of(int tile) const {
    return kOfTile ? config.first_step(tile, config.split > 1 ? rank + 1 : 1) : end_step;
  }
  __device__ explicit Place(int from_the_last) : backwards(from_the_last) {
    if constexpr (kBlocks > 1) rank = static_cast<int>(ptx::cluster_rank());
    if constexpr (config.split > 1)
      first_step = config.first_step(rank), end_step = config.first_step(rank + 1);
  }
};

// Who arrives at a stage's barriers: a team that loads, and one of it again for the weights; threads that
// multiply.
template <ImplicitGemmSm90 config>
struct Arrivals {
  static constexpr int kFull = config.team_threads() + 1;
  static constexpr int kEmpty = 128 * (config.ping_pong ? 1 : config.consumers) * config.cluster;
};

template <ImplicitGemmSm90 config>
__device__ __forceinline__ void bring_weights(const unsigned* __restrict__ packed, const Place<config>& place,
                                              int tile, int step, unsigned to, unsigned full, bool mine) {
  constexpr int kBlockBytes = config.weight_bytes(), kPart = kBlockBytes / config.cluster;
  const int block = tile % constant<config.filter_blocks()>;
  const char* const from = reinterpret_cast<const char*>(packed) +
                           (static_cast<long long>(block) * constant<config.steps()> + step) * kBlockBytes;
  ptx::mbarrier_arrive_expect_if(full, kBlockBytes, mine);
  if constexpr (config.cluster > 1)
    ptx::bulk_copy_to_all_if(to + place.rank * kPart, from + place.rank * kPart, kPart, full,
                             (1u << config.cluster) - 1, mine);
  else
    ptx::bulk_copy_to_shared_if(to, from, kPart, full, mine);
}

// How a team shares a stage of x: a thread has some places for every kTogether-th channel.
template <ImplicitGemmSm90 config>
struct Share {
  static constexpr int kAtOnce = config.at_once(), kThreads = config.team_threads();
  static constexpr int kPlaces = greater(config.places() / kThreads, 1);
  static constexpr int kTogether = greater(kThreads / config.places(), 1);
  static constexpr int kChannels = config.channels / kTogether;  // per thread
  static constexpr int kPixels = kThreads * kAtOnce;             // from place to place
};

// One of a thread's places: where its first tap is, in x and in an image.
struct Source {
  const float* first;
  int frame, row, column;
};

template <ImplicitGemmSm90 config>
__device__ __forceinline__ Source source_of(const float* __restrict__ x, int pixel, int channel) {
  constexpr ConvExtents a = config.conv;
  const ImplicitGemmSm90::Pixel at = config.output_at(pixel);
  const int frame = at.frame * a.stride_d - a.pad_front;
  const int row = at.row * a.stride_h - a.pad_top, column = at.column * a.stride_w - a.pad_left;
  const bool real = pixel < constant<static_cast<int>(config.pixels())>;
  return {x + a.input_offset(real ? at.image : 0, channel, frame, row, column), frame, real ? row : a.h,
          column};
}

template <ImplicitGemmSm90 config>
__device__ void load(const float* __restrict__ x, const unsigned* __restrict__ packed, unsigned smem,
                     int backwards) {
  using S = Share<config>;
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  constexpr long long kVolume = static_cast<long long>(a.d) * a.h * a.w;
  constexpr bool kWhole = a.group_channels() % config.channels == 0;
  constexpr int kTeams = config.teams(), kPlaces = config.places(), kPitch = config.pitch();
  constexpr int kStage = config.stage_bytes(), kInputs = config.input_bytes();
  constexpr Tf32GemmTiles kTiles = config.tile_order();
  constexpr Tf32GemmSteps kSteps = config.step_order();
  const Place<config> place(backwards);
  const int thread = static_cast<int>(threadIdx.x) % S::kThreads;
  const int channel = S::kTogether > 1 ? thread / kPlaces : 0;  // the thread's first
  const int row = (S::kTogether > 1 ? thread % kPlaces : thread) * S::kAtOnce;
  const unsigned mine = smem + kAt.stages + channel * kPitch + row * 4;
  int ahead = static_cast<int>(threadIdx.x) % 128 / S::kThreads;  // steps until the team's next
  Ring<config.stages> ring{.slot = ahead};
#pragma unroll 1
  for (int index = place.first; index < place.kTiles; index += place.step) {
    const int tile = place.tile(index);
    const int end_step = place.end_of(tile);
    int index_of_step = place.first_of(tile) + ahead;
    ahead = index_of_step - end_step;
    if (ahead >= 0) continue;
    Source sources[S::kPlaces];
#pragma unroll
    for (int i = 0; i < S::kPlaces; ++i)
      sources[i] = source_of<config>(x, kTiles.first_pixel(tile, place.rank) + row + i * S::kPixels,
                                     kTiles.first_channel(tile) + channel);
#pragma unroll 1
    for (; index_of_step < end_step; index_of_step += kTeams) {
      const int step = place.kOfTile ? config.step_of(tile, index_of_step) : index_of_step;
      ring.wait_empty(smem + kAt.empty);
      const unsigned full = ring.barrier(smem + kAt.full);
      const unsigned stage = ring.slot * kStage;
      bring_weights<config>(packed, place, tile, step, smem + kAt.stages + stage + kInputs, full,
                            thread == 0);
      const int tap_row = kSteps.row(step), tap_column = kSteps.column(step);
      const int first_channel = kSteps.first_channel(step);
      const int tap_frame = kSteps.frame(step);
      const long long tap = first_channel * kVolume + (tap_frame * a.h + tap_row) * a.w + tap_column;
      const int left = a.group_channels() - first_channel - channel;  // channels, from the thread's first on
      for_constants<0, S::kPlaces>([&](auto i) {
        constexpr int kTo = 4 * i.value * S::kPixels;
        const Source& source = sources[i.value];
        const bool in_frames =
            !a.has_depth() || static_cast<unsigned>(source.frame + tap_frame) < static_cast<unsigned>(a.d);
        const bool inside = in_frames &&
                            static_cast<unsigned>(source.row + tap_row) < static_cast<unsigned>(a.h) &&
                            static_cast<unsigned>(source.column + tap_column) < static_cast<unsigned>(a.w);
        const unsigned bytes = inside ? 4 * S::kAtOnce : 0;
        const float* const from = source.first + tap;
        for_constants<0, S::kChannels>([&](auto c) {
          constexpr int kChannel = c.value * S::kTogether;
          ptx::cp_async_behind<4 * S::kAtOnce, kChannel * kPitch + kTo, 4 * kVolume * kChannel>(
              mine + stage, from, kWhole || kChannel < left ? bytes : 0);
        });
      });
      ptx::cp_async_mbarrier_arrive(full);
      ring.template skip<kTeams>();
    }
    ahead = index_of_step - end_step;
  }
}

}  // namespace convtune::implicit_gemm_sm90
