// The warps of direct_depthwise_half_sm90.cuh that copy, by TMA: rows of tiles to shared memory, and outputs
// from there.
#pragma once

#include "cuda/algorithms/direct_depthwise_half_sm90/config.h"
#include "cuda/tile/ring.cuh"

namespace convtune::direct_depthwise_half_sm90 {

struct Maps {
  ptx::TensorMap x, y, residual;
};

// A block's tiles, run by run: those of a run are below each other. Chunks are neighbouring blocks', so that
// one finds in L2 what another has read of a line.
template <DirectDepthwiseHalfSm90 config>
struct Walk {
  int tile, end;
  int channel = static_cast<int>(blockIdx.x) % config.chunks() * config.channels();
  int side = 0, level = 0, image = 0, count = 0;  // for the run: its first tile, and how many

  __device__ __forceinline__ Walk() {
    constexpr int kTiles = static_cast<int>(config.chunk_tiles());
    const int block = static_cast<int>(blockIdx.x) / config.chunks();
    const int blocks = static_cast<int>(gridDim.x) / config.chunks();
    const int each = kTiles / blocks, more = kTiles % blocks;
    tile = block * each + (block < more ? block : more);
    end = tile + each + (block < more);
  }
  __device__ __forceinline__ bool more() const { return tile < end; }
  __device__ __forceinline__ void next() {
    level = tile % config.levels();
    const int column = tile / config.levels();
    side = column % config.sides();
    image = column / config.sides() * config.images;
    const int below = config.levels() - level;
    count = !config.rolls() ? 1 : below < end - tile ? below : end - tile;
    tile += count;
  }
  __device__ __forceinline__ int p() const { return level * config.rows; }
  __device__ __forceinline__ int q() const { return side * config.tile_columns(); }
};

// One warp brings rows of tiles as far ahead as there are stages. What is behind conditions is one thread's,
// without a branch round it.
template <DirectDepthwiseHalfSm90 config>
__device__ __forceinline__ void load_tiles(const Maps& maps, unsigned smem, bool copies) {
  constexpr ConvExtents a = config.conv;
  constexpr DirectDepthwiseHalfSm90::Smem kAt = config.smem();
  Ring<config.stages> stage;
  Walk<config> walk;
#pragma unroll 1
  while (walk.more()) {
    walk.next();
    const int top = config.first_row(walk.level), left = config.first_column(walk.side);
    const int rows = config.strip_rows() + (walk.count - 1) * config.turn_rows();
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
      stage.wait_empty(smem + kAt.empty);
      const unsigned full = stage.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, config.bands * config.band_bytes(), copies);
#pragma unroll(config.bands <= 4 ? config.bands : 1)
      for (int band = 0; band < config.bands; ++band) {
        const unsigned to =
            smem + kAt.inputs + stage.slot * config.stage_bytes() + band * config.band_bytes();
        const int h = top + row + band * (config.band_rows() * a.stride_h);
        ptx::load_box_if(to, &maps.x, walk.channel, left, h, walk.image, 0, full, copies);
      }
      stage.next();
      __syncwarp();  // lanes that only wait keep up with the one that copies: the ring must not lap them
    }
  }
}

// Another stores rows of outputs, and gives their places back: with a residual when that has come.
template <DirectDepthwiseHalfSm90 config>
struct Stores {
  static constexpr ConvExtents a = config.conv;
  static constexpr DirectDepthwiseHalfSm90::Smem kAt = config.smem();
  const Maps& maps;
  unsigned smem;
  bool copies;                                 // this thread
  Ring<config.slots()> slot = {}, place = {};  // of the output that is complete next, of the next residual
  Walk<config> residuals = {};
  int residual_row = 0;  // for their run

  __device__ __forceinline__ unsigned place_of(const Ring<config.slots()>& at, int band) const {
    return smem + kAt.outputs + at.slot * config.slot_bytes() +
           band * (config.band_pixels() * config.pixel_bytes());
  }
  __device__ __forceinline__ void give_place() {
    const unsigned ready = place.barrier(smem + kAt.ready);
    if (a.residual && residual_row == residuals.count * config.rows && residuals.more())
      residuals.next(), residual_row = 0;
    if (!a.residual || residual_row == residuals.count * config.rows) {
      ptx::mbarrier_arrive_if(ready, copies);
    } else {
      constexpr int kBytes = config.images * config.tile_columns() * config.pixel_bytes();
      ptx::mbarrier_arrive_expect_if(ready, config.bands * kBytes, copies);
#pragma unroll 1
      for (int band = 0; band < config.bands; ++band)
        ptx::load_box_if(place_of(place, band), &maps.residual, residuals.channel, residuals.q(),
                         residuals.p() + band * config.band_rows() + residual_row, residuals.image, 0, ready,
                         copies);
      ++residual_row;
    }
    place.next();
  }
  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int i = 0; i < config.slots(); ++i) give_place();
    Walk<config> walk;
    bool first = true;
#pragma unroll 1
    while (walk.more()) {
      walk.next();
      const int rows = walk.count * config.rows;
#pragma unroll 1
      for (int row = 0; row < rows; ++row) {
        slot.wait_full(smem + kAt.finished);
        ptx::fence_proxy_async();  // a fence may lie anywhere between their writes and the copy: here it is
                                   // one
#pragma unroll(config.bands <= 4 ? config.bands : 1)
        for (int band = 0; band < config.bands; ++band) {
          const int p = walk.p() + band * config.band_rows() + row;
          ptx::store_box_if(&maps.y, walk.channel, walk.q(), p, walk.image, 0, place_of(slot, band),
                            copies && p < a.p);
        }
        ptx::bulk_commit_group();
        slot.next();
        // The place of the outputs before these, which have been read meanwhile.
        ptx::bulk_wait_read_but<1>();
        if (!first) give_place();
        first = false;
        __syncwarp();  // as in load_tiles()
      }
    }
    ptx::bulk_wait();
  }
};

}  // namespace convtune::direct_depthwise_half_sm90
