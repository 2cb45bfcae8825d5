// How x comes in direct_body_half_nchw_sm90.cuh. One warp asks TMA for boxes of 8 channels of a stage as they
// lie in NCHW, a few ahead; two others read each by matrix loads, which transpose, and write it to where
// consumers want it: a pixel after the other, with its channels beside each other. A matrix is 8 channels of
// 8 pixels of a line. It begins at any pixel of the stage, since pixels are written one by one, and what a
// box has besides is dropped.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/body.cuh"

namespace convtune::direct_body_half_nchw_sm90 {

using direct_body_half_sm90::frames_that_count;
using direct_body_half_sm90::kLoadingThreads;
using direct_body_half_sm90::map_of_frame;
using direct_body_half_sm90::MapsOf;
using direct_body_half_sm90::Place;

// The warps of the loading warpgroup that transpose, behind that of the weights.
inline constexpr int kFirstTransposing = 2, kTransposingWarps = 2;

// f(stage) for a tile's stages that count.
template <DirectBodyHalfSm90 config, class F>
__device__ __forceinline__ void for_stages(int tile, const F& f) {
  constexpr BodyStages kStages = config.stage_order();
  const DirectBodyHalfSm90::Frames frames = frames_that_count<config>(tile);
#pragma unroll 1
  for (int stage = 0; stage < constant<config.stages()>; ++stage)
    if (constant<!config.skips_frames()> || frames.has(kStages.frame(stage))) f(stage);
}

// By one warp, of which one thread does it.
template <DirectBodyHalfSm90 config>
__device__ void load_slices(const MapsOf<config>& maps, unsigned smem, int images) {
  constexpr auto kAt = config.smem();
  constexpr BodySlices kSlices = config.slices();
  constexpr BodyAxis kRows = config.vertical(), kColumns = config.horizontal();
  constexpr int kAbove = kRows.before(), kBefore = kColumns.before();
  constexpr BodyTiles kTiles = config.tile_order();
  constexpr BodyStages kStages = config.stage_order();
  const Place<config> place(images);
  const bool mine = threadIdx.x % 32 == 0;
  Ring<BodySlices::kPlaces> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    // A cluster's last block may have none: it brings zeros, which nobody stores.
    const DirectBodyHalfSm90::Corner at = kTiles.corner(tile, place.rank);
    const int column = kSlices.first_column(at.column, kBefore);
    for_stages<config>(tile, [&](int stage) {
      const int row = (at.row - kAbove) * kRows.stride + kRows.phase(kStages.first_row(stage));
      int image = kStages.input_image(stage, at.image);
      const ptx::TensorMap* const map = map_of_frame<config>(maps, image);
      const int first_channel = at.group * constant<config.depth()> + kStages.first_channel(stage);
#pragma unroll 1
      for (int slice = 0; slice < config.slices_of(stage); ++slice) {
        ring.wait_empty(smem + kAt.slices_empty);
        const unsigned full = ring.barrier(smem + kAt.slices_full);
        ptx::mbarrier_arrive_expect_if(full, kSlices.bytes(), mine);
        ptx::load_box_if(smem + kAt.slices + ring.slot * kSlices.bytes(), map, column,
                         first_channel + slice * BodySlices::kChannels, row, image, at.volume, full, mine);
        ring.next();
      }
    });
  }
}

// Lines that a warp transposes at once, so that it waits for several matrix loads at a time.
template <DirectBodyHalfSm90 config>
struct Lines {
  static constexpr int kQuads = ceil_div(config.slices().blocks(), 4);  // matrix loads of a line
  static constexpr int kAtOnce = kQuads == 1 ? 4 : kQuads == 2 ? 2 : 1, kLoads = kAtOnce * kQuads;
  static constexpr int kStep = kAtOnce * kTransposingWarps;
};

// Every so many-th line of a slice, from `line` on, to a stage. `first`: the pixel of a line that a lane has
// of the first matrix.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ void transpose_lines(unsigned from, unsigned to, int line, int slice, int first,
                                                int lane) {
  constexpr BodySlices kSlices = config.slices();
  using L = Lines<config>;
  constexpr int kBlocks = kSlices.blocks(), kPixels = BodySlices::kPixels, kTogether = 4;
  unsigned there[L::kAtOnce];
#pragma unroll
  for (int i = 0; i < L::kAtOnce; ++i) {
    const int pixel = (line + i * kTransposingWarps) * kSlices.pitch + first;
    const int piece = config.exchanged(pixel + kPixels, slice);  // a row from 0 on
    there[i] = to + pixel * config.row_bytes() + 16 * piece + 4 * (lane % 4);
  }
#pragma unroll
  for (int begin = 0; begin < L::kLoads; begin += kTogether) {
    constexpr bool kWhole = kSlices.lines % L::kStep == 0;
    unsigned words[kTogether][4];
#pragma unroll
    for (int j = 0; j < lesser(kTogether, L::kLoads - begin); ++j) {
      const int one = line + (begin + j) / L::kQuads * kTransposingWarps, quad = (begin + j) % L::kQuads;
      const int block =
          4 * quad + lesser(lane / 8, lesser(3, kBlocks - 1 - 4 * quad));  // the last ones twice
      ptx::ldmatrix_x4_trans(words[j],
                             from + (kWhole ? one : lesser(one, kSlices.lines - 1)) * kSlices.line_bytes() +
                                 block * (2 * kPixels));
    }
#pragma unroll
    for (int j = 0; j < lesser(kTogether, L::kLoads - begin); ++j) {
      const int i = (begin + j) / L::kQuads, quad = (begin + j) % L::kQuads;
      const bool exists = kWhole || line + i * kTransposingWarps < kSlices.lines;
#pragma unroll
      for (int k = 0; k < lesser(4, kBlocks - 4 * quad); ++k) {
        const int block = 4 * quad + k, pixel = first + block * kPixels;
        const bool inside =
            block * kPixels >= kSlices.shift && (block + 1) * kPixels <= kSlices.shift + kSlices.pitch;
        ptx::st_shared_if(there[i] + block * (kPixels * config.row_bytes()), words[j][k],
                          exists && (inside || (pixel >= 0 && pixel < kSlices.pitch)));
      }
    }
  }
}

// By kTransposingWarps, of which this is `warp`.
template <DirectBodyHalfSm90 config>
__device__ void transpose_slices(unsigned smem, int warp, int images) {
  constexpr auto kAt = config.smem();
  constexpr BodySlices kSlices = config.slices();
  const Place<config> place(images);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = lane / 4 - kSlices.shift;  // this lane's first position of a transposed matrix
  const unsigned row = lane % 8 * kSlices.channel_bytes();
  Ring<config.input_stages> inputs;
  Ring<BodySlices::kPlaces> slices;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step)
    for_stages<config>(tile, [&](int stage) {
      inputs.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.inputs + inputs.slot * constant<config.input_stage_bytes()>;
#pragma unroll 1
      for (int slice = 0; slice < config.slices_of(stage); ++slice) {
        slices.wait_full(smem + kAt.slices_full);
        const unsigned from = smem + kAt.slices + slices.slot * kSlices.bytes() + row;
#pragma unroll 1
        for (int line = warp; line < kSlices.lines; line += Lines<config>::kStep)
          transpose_lines<config>(from, to, line, slice, first, lane);
        __syncwarp();
        ptx::mbarrier_arrive_if(slices.barrier(smem + kAt.slices_empty), lane == 0);
        slices.next();
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(inputs.barrier(smem + kAt.full));
      inputs.next();
    });
}

// A stage of an x that may begin anywhere, by kLoadingThreads: `thread` of them, an element at a time.
template <DirectBodyHalfSm90 config>
__device__ void load_anywhere(const unsigned short* __restrict__ x, const unsigned short* __restrict__ cache,
                              unsigned smem, int thread, int images) {
  constexpr auto kAt = config.smem();
  constexpr BodyAxis kRows = config.vertical(), kColumns = config.horizontal();
  constexpr int kAbove = kRows.before(), kBefore = kColumns.before(), kPitch = config.pitch(),
                kBoxRows = config.box_rows();
  constexpr BodyTiles kTiles = config.tile_order();
  constexpr BodyStages kStages = config.stage_order();
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = config.pieces(), kPlane = a.h * a.w;
  const Place<config> place(images);
  Ring<config.input_stages> ring;
#pragma unroll 1
  for (int tile = place.first_tile; tile < place.tiles; tile += place.tile_step) {
    const DirectBodyHalfSm90::Corner at = kTiles.corner(tile, place.rank);
    for_stages<config>(tile, [&](int stage) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.inputs + ring.slot * constant<config.input_stage_bytes()>;
      const int row_phase = kRows.phase(kStages.first_row(stage));
#pragma unroll 1
      for (int i = thread; i < constant<config.box_pixels()> * kPieces; i += kLoadingThreads) {
        const int pixel = i / kPieces, piece = i % kPieces, line = pixel / kPitch;
        const int image = kStages.input_image(stage, at.image + line / kBoxRows);
        const int row = (at.row - kAbove + line % kBoxRows) * kRows.stride + row_phase;
        const int column = at.column - kBefore + pixel % kPitch;
        const int channel = kStages.first_channel(stage) + 8 * piece;
        const bool inside = of_run<config>(images, [&](const auto& one) {
          return at.volume < one.volumes() && image >= -one.cache && image < one.input_batch() && row >= 0 &&
                 row < a.h && column >= 0 && column < a.w && channel < one.depth();
        });
        unsigned words[4] = {0, 0, 0, 0};
        if (inside) {
          const bool in_cache = config.cache > 0 && image < 0;
          const int frames = !a.has_depth() ? 1 : in_cache ? config.cache : a.d;
          const int frame = !a.has_depth() ? 0 : in_cache ? image + config.cache : image;
          const int volume = a.has_depth() ? at.volume : image;
          const long long plane =
              (1LL * volume * a.c + at.group * constant<config.depth()> + channel) * frames + frame;
          const unsigned short* const from = (in_cache ? cache : x) + plane * kPlane + row * a.w + column;
#pragma unroll
          for (int j = 0; j < 8; ++j)
            words[j / 2] |= static_cast<unsigned>(from[1LL * j * frames * kPlane]) << j % 2 * 16;
        }
        ptx::st_shared_v4(to + pixel * config.row_bytes() + 16 * config.exchanged(pixel, piece), words);
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(ring.barrier(smem + kAt.full));
      ring.next();
    });
  }
}

}  // namespace convtune::direct_body_half_nchw_sm90
