// The warpgroup of weight_gradient_half_sm90.cuh that loads: pixels of dy as they lie, and of x those that a
// tap meets, where TMA walks over the images, padding and all.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/config.h"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::weight_gradient_half_sm90 {

struct Maps {
  ptx::TensorMap x, dy;
};

// A block's parts of tiles, one after the other:
//   for (Part<config> part; part.exists(); part.next())
template <WeightGradientHalfSm90 config>
struct Part {
  static constexpr int kChunks = static_cast<int>(config.chunks());
  int tile, chunk, left;  // the first chunk, and chunks of this block from it on

  __device__ Part() {
    const int block = static_cast<int>(blockIdx.x);
    const long long first = config.first_work(block);
    left = static_cast<int>(config.first_work(block + 1) - first);
    tile = static_cast<int>(first / kChunks), chunk = static_cast<int>(first % kChunks);
  }
  __device__ bool exists() const { return left > 0; }
  __device__ int end() const { return lesser(kChunks, chunk + left); }  // behind the last chunk
  __device__ void next() {
    left -= end() - chunk;
    chunk = 0, ++tile;
  }
  // Blocks of 64 filters, and of 64 columns, that a tile has; others of its place are not loaded, and what is
  // computed of them is not read.
  __device__ int filter_blocks() const {
    constexpr int kAll = ceil_div(config.conv.k, config.kBlock);
    return lesser(config.tile_rows() / config.kBlock, kAll - config.first_filter(tile) / config.kBlock);
  }
  __device__ int column_blocks() const {
    return lesser(config.tile_blocks(), config.all_blocks() - config.first_block(tile));
  }
};

template <WeightGradientHalfSm90 config>
__device__ void load(const Maps& maps, unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr int kBlocks = config.tile_blocks();
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.stages> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next()) {
    const int filter_blocks = part.filter_blocks(), column_blocks = part.column_blocks();
    const unsigned bytes = static_cast<unsigned>((filter_blocks + column_blocks) * config.block_bytes());
    WeightGradientHalfSm90::Reach reach[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) reach[i] = config.reach(config.first_block(part.tile) + i);
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      const int pixel = chunk * config.pixels;
      const WeightGradientHalfSm90::Pixel first = config.first_tap(pixel);
      ring.wait_empty(smem + kAt.empty);
      unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
      const unsigned full = ring.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, bytes, mine);
#pragma unroll
      for (int i = 0; i < config.tile_rows() / config.kBlock; ++i, to += config.block_bytes())
        ptx::load_rows_if(to, &maps.dy, config.first_filter(part.tile) + i * config.kBlock, pixel, full,
                          mine && i < filter_blocks);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i, to += config.block_bytes()) {
        const bool loads = mine && i < column_blocks;
        const WeightGradientHalfSm90::Reach& at = reach[i];
        if constexpr (config.pointwise())
          ptx::load_rows_if(to, &maps.x, at.channel, pixel, full, loads);
        else if constexpr (config.conv.has_depth())
          ptx::load_frame_pixels_if(to, &maps.x, at.channel, first.column, first.row, first.frame,
                                    first.image, at.columns, at.rows, at.frames, full, loads);
        else
          ptx::load_pixels_if(to, &maps.x, at.channel, first.column, first.row, first.image, at.columns,
                              at.rows, full, loads);
      }
      ring.next();
    }
  }
}

// Eight numbers of a tensor that may begin anywhere, from `offset` on, the first `count` of them.
__device__ __forceinline__ void load_eight(unsigned (&words)[4], const unsigned short* __restrict__ from,
                                           long long offset, int count) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 0;
    if (2 * i < count) words[i] = from[offset + 2 * i];
    if (2 * i + 1 < count) words[i] |= static_cast<unsigned>(from[offset + 2 * i + 1]) << 16;
  }
}

// As above, for tensors that may begin anywhere, by a warpgroup: an element at a time.
template <WeightGradientHalfSm90 config>
__device__ void load_anywhere(const unsigned short* __restrict__ x, const unsigned short* __restrict__ dy,
                              unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  constexpr int kFilterBlocks = config.tile_rows() / config.kBlock;
  constexpr int kPieces = config.pixels * 8;  // of 16 bytes, of a block
  const int thread = static_cast<int>(threadIdx.x) % 128;
  Ring<config.stages> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next()) {
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
#pragma unroll 1
      for (int i = thread; i < (kFilterBlocks + config.tile_blocks()) * kPieces; i += 128) {
        const int block = i / kPieces, row = i % kPieces / 8, piece = i % 8;
        const int pixel = chunk * config.pixels + row;
        unsigned words[4] = {0, 0, 0, 0};
        if (pixel < config.all_pixels() && block < kFilterBlocks) {
          const int filter = config.first_filter(part.tile) + block * config.kBlock + 8 * piece;
          load_eight(words, dy, static_cast<long long>(pixel) * a.k + filter, a.k - filter);
        } else if (pixel < config.all_pixels() && block - kFilterBlocks < part.column_blocks()) {
          const WeightGradientHalfSm90::Reach reach =
              config.reach(config.first_block(part.tile) + block - kFilterBlocks);
          const WeightGradientHalfSm90::Pixel first = config.first_tap(pixel);
          const int frame = first.frame + reach.frames, at_row = first.row + reach.rows,
                    column = first.column + reach.columns, channel = reach.channel + 8 * piece;
          if (frame >= 0 && frame < a.d && at_row >= 0 && at_row < a.h && column >= 0 && column < a.w &&
              channel < a.c)
            load_eight(words, x, a.input_offset(first.image, channel, frame, at_row, column), a.c - channel);
        }
        ptx::st_shared_v4(to + block * config.block_bytes() + row * config.kRowBytes + 16 * (piece ^ row % 8),
                          words);
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(ring.barrier(smem + kAt.full));
      ring.next();
    }
  }
}

}  // namespace convtune::weight_gradient_half_sm90
