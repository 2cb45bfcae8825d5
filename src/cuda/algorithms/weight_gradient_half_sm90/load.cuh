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

// A block's whole tiles and parts of others, one after the other:
//   for (Part<config> part; part.exists(); part.next())
template <WeightGradientHalfSm90 config>
struct Part {
  static constexpr int kChunks = static_cast<int>(config.chunks());
  int tile, chunk, left;  // the first chunk, and chunks of this block from it on

  __device__ Part() {
    tile = static_cast<int>(blockIdx.x), chunk = 0, left = kChunks;
    if (!is_whole()) begin_split();
  }
  __device__ void begin_split() {
    const int block = static_cast<int>(blockIdx.x);
    const long long first = config.first_work(block);
    left = static_cast<int>(config.first_work(block + 1) - first);
    tile = config.whole + static_cast<int>(first / kChunks), chunk = static_cast<int>(first % kChunks);
  }
  __device__ bool is_whole() const { return config.whole > 0 && tile < config.whole; }
  __device__ bool exists() const { return left > 0; }
  __device__ int end() const { return lesser(kChunks, chunk + left); }  // behind the last chunk
  __device__ void next() {
    if (is_whole()) {
      tile += config.blocks;
      if (!is_whole()) begin_split();
      return;
    }
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

// Rows of y, and of x for all taps, by TMA, which leaves the ends of both as they are.
template <WeightGradientHalfSm90 config>
__device__ void load_windows(const Maps& maps, unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.stages> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next()) {
    const int filter_blocks = part.filter_blocks();
    const unsigned bytes =
        static_cast<unsigned>(filter_blocks * config.loaded_block_bytes() + config.loaded_window_bytes());
    const int frame = config.window_frame(part.tile) * a.dilation_d - a.pad_front;
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      const WeightGradientHalfSm90::Rows rows = config.rows_of(chunk);
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
      const unsigned full = ring.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, bytes, mine);
#pragma unroll
      for (int i = 0; i < config.tile_rows() / config.kBlock; ++i)
        ptx::load_box_if(to + config.input_bytes() + i * config.block_bytes(), &maps.dy,
                         config.first_filter(part.tile) + i * config.kBlock, 0, rows.row, rows.frame,
                         rows.image, full, mine && i < filter_blocks);
      ptx::load_box_if(to, &maps.x, config.window_channel(part.tile), -a.pad_left, rows.row - a.pad_top,
                       rows.frame * a.stride_d + frame, rows.image, full, mine);
      ring.next();
    }
  }
}

// Positions behind the last row of a stage, which no copy brings, by all threads: products read zeros there.
template <WeightGradientHalfSm90 config>
__device__ void clear_ends(unsigned smem) {
  constexpr unsigned kZeros[4] = {0, 0, 0, 0};
  const auto clear = [&](int begin, int end) {
    for (int i = begin + static_cast<int>(threadIdx.x) * 16; i < end; i += config.threads() * 16)
      ptx::st_shared_v4(smem + static_cast<unsigned>(i), kZeros);
  };
#pragma unroll 1
  for (int stage = 0; stage < config.stages; ++stage) {
    const int begin = config.smem().stages + stage * config.stage_bytes();
#pragma unroll 1
    for (int i = 0; i < config.tile_rows() / config.kBlock; ++i)
      clear(begin + config.input_bytes() + i * config.block_bytes() + config.loaded_block_bytes(),
            begin + config.input_bytes() + (i + 1) * config.block_bytes());
    clear(begin + config.loaded_window_bytes(), begin + config.input_bytes());
  }
}

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
      const unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
      const unsigned full = ring.barrier(smem + kAt.full);
      ptx::mbarrier_arrive_expect_if(full, bytes, mine);
#pragma unroll
      for (int i = 0; i < config.tile_rows() / config.kBlock; ++i)
        ptx::load_rows_if(to + config.input_bytes() + i * config.block_bytes(), &maps.dy,
                          config.first_filter(part.tile) + i * config.kBlock, pixel, full,
                          mine && i < filter_blocks);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const bool loads = mine && i < column_blocks;
        const unsigned there = to + i * config.block_bytes();
        const WeightGradientHalfSm90::Reach& at = reach[i];
        if constexpr (config.pointwise())
          ptx::load_rows_if(there, &maps.x, at.channel, pixel, full, loads);
        else if constexpr (config.conv.has_depth())
          ptx::load_frame_pixels_if(there, &maps.x, at.channel, first.column, first.row, first.frame,
                                    first.image, at.columns, at.rows, at.frames, full, loads);
        else
          ptx::load_pixels_if(there, &maps.x, at.channel, first.column, first.row, first.image, at.columns,
                              at.rows, full, loads);
      }
      ring.next();
    }
  }
}

// Eight numbers of a tensor that may begin anywhere, from `offset` on, each `step` behind the one before: the
// first `count` of them.
__device__ __forceinline__ void load_eight(unsigned (&words)[4], const unsigned short* __restrict__ from,
                                           long long offset, long long step, int count) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 0;
    if (2 * i < count) words[i] = from[offset + 2 * i * step];
    if (2 * i + 1 < count) words[i] |= static_cast<unsigned>(from[offset + (2 * i + 1) * step]) << 16;
  }
}

// As above, for tensors that may begin anywhere, by a warpgroup: an element at a time.
template <WeightGradientHalfSm90 config>
__device__ void load_anywhere(const unsigned short* __restrict__ x, const unsigned short* __restrict__ dy,
                              unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  const auto load_input = [](unsigned(&words)[4], const unsigned short* __restrict__ from,
                             const WeightGradientHalfSm90::Pixel& at, int channel) {
    if (at.frame >= 0 && at.frame < a.d && at.row >= 0 && at.row < a.h && at.column >= 0 && at.column < a.w &&
        channel < a.c)
      load_eight(words, from, a.input_offset(at.image, channel, at.frame, at.row, at.column),
                 config.planes ? 1LL * a.d * a.h * a.w : 1, a.c - channel);
  };
  const auto load_gradient = [](unsigned(&words)[4], const unsigned short* __restrict__ from, int pixel,
                                int filter) {
    constexpr int kPixels = a.z * a.p * a.q;  // pixels of an image
    if constexpr (config.planes)
      load_eight(words, from, (1LL * (pixel / kPixels) * a.k + filter) * kPixels + pixel % kPixels, kPixels,
                 a.k - filter);
    else
      load_eight(words, from, static_cast<long long>(pixel) * a.k + filter, 1, a.k - filter);
  };
  const int thread = static_cast<int>(threadIdx.x) % 128;
  Ring<config.stages> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next()) {
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
#pragma unroll 1
      for (int i = thread; i < config.stage_bytes() / 16; i += 128) {
        const bool of_x = 16 * i < config.input_bytes();
        constexpr int kInputPieces = config.window > 0 ? config.input_row_bytes() / 16 : 8;  // a row's pieces
        const int pieces = of_x ? kInputPieces : 8, piece = i % pieces;
        const int at_row = (i - (of_x ? 0 : config.input_bytes() / 16)) / pieces;
        unsigned words[4] = {0, 0, 0, 0};
        if constexpr (config.window > 0) {
          const int block = of_x ? 0 : at_row / config.positions();
          const int position = of_x ? at_row : at_row % config.positions();
          const WeightGradientHalfSm90::Rows rows = config.rows_of(chunk);
          const int row = rows.row + position / config.pitch(), column = position % config.pitch();
          if (of_x)
            load_input(words, x,
                       {rows.image,
                        rows.frame * a.stride_d + config.window_frame(part.tile) * a.dilation_d - a.pad_front,
                        row - a.pad_top, column - a.pad_left},
                       config.window_channel(part.tile) + 8 * piece);
          else if (position < config.window * config.pitch() && row < a.p && column < a.q)
            load_gradient(words, dy, ((rows.image * a.z + rows.frame) * a.p + row) * a.q + column,
                          config.first_filter(part.tile) + block * config.kBlock + 8 * piece);
        } else {
          const int block = at_row / config.pixels, pixel = chunk * config.pixels + at_row % config.pixels;
          if (pixel < config.all_pixels() && of_x && block < part.column_blocks()) {
            const WeightGradientHalfSm90::Reach reach = config.reach(config.first_block(part.tile) + block);
            const WeightGradientHalfSm90::Pixel first = config.first_tap(pixel);
            load_input(words, x,
                       {first.image, first.frame + reach.frames, first.row + reach.rows,
                        first.column + reach.columns},
                       reach.channel + 8 * piece);
          } else if (pixel < config.all_pixels() && !of_x) {
            load_gradient(words, dy, pixel,
                          config.first_filter(part.tile) + block * config.kBlock + 8 * piece);
          }
        }
        // Blocks begin at multiples of 1024: a row's number counts from there.
        ptx::st_shared_v4(to + 16 * (i ^ (i / 8 % pieces)), words);
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(ring.barrier(smem + kAt.full));
      ring.next();
    }
  }
}

}  // namespace convtune::weight_gradient_half_sm90
