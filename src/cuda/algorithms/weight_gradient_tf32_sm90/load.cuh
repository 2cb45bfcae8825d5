// How x and dy come in weight_gradient_tf32_sm90.cuh: TMA brings slices, some rows of either as they lie, a
// few ahead; warps read four pixels of 32 channels or filters word by word, round them, and write 16 bytes of
// each to where wgmma reads them, those of x once for each column of the filter. A lane is a channel: neither
// its loads nor its stores meet another's at a bank.
#pragma once

#include "cuda/algorithms/weight_gradient_tf32_sm90/config.h"
#include "cuda/ptx/sm90.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::weight_gradient_tf32_sm90 {

struct Maps {
  ptx::TensorMap x, dy;
};

// A block's tile of dw, and the chunks of pixels that it has: every split-th.
template <WeightGradientTf32Sm90 config>
struct Part {
  static constexpr int kChunks = static_cast<int>(config.chunks());
  int tile, rank;
  __device__ Part()
      : tile(static_cast<int>(blockIdx.x) % config.tiles()),
        rank(static_cast<int>(blockIdx.x) / config.tiles()) {}
  __device__ int first_filter() const { return tile / config.column_tiles() * config.tile_rows(); }
  __device__ int first_channel() const { return tile % config.column_tiles() * config.tile_channels(); }
  __device__ int chunks() const { return (kChunks - rank + config.split - 1) / config.split; }
};

// What asks for slices, one after the other, by one warp, of which one thread does it.
template <WeightGradientTf32Sm90 config>
struct Asking {
  static constexpr ConvExtents a = config.conv;
  const Maps& maps;
  unsigned smem;
  Part<config> part{};
  int chunk = part.rank, slice = 0;
  Ring<config.slice_places()> ring{};

  __device__ __forceinline__ void ask() {
    constexpr auto kAt = config.smem();
    constexpr int kOfGradient = config.gradient_slices();
    if (chunk >= part.kChunks) return;
    const bool mine = threadIdx.x % 32 == 0, dys = slice < kOfGradient;
    const WeightGradientTf32Sm90::Place at = config.place_of(chunk);
    ring.wait_empty(smem + kAt.slices_empty);
    const unsigned full = ring.barrier(smem + kAt.slices_full);
    const unsigned to = smem + kAt.slices + ring.slot * config.slice_bytes();
    ptx::mbarrier_arrive_expect_if(full, dys ? config.gradient_slice_bytes() : config.input_slice_bytes(),
                                   mine);
    const int row = at.row + slice * config.gradient_slice_rows();
    const int input_row = (slice - kOfGradient) * config.input_slice_rows();
    if constexpr (config.flat()) {
      ptx::load_rows_if(to, &maps.dy, part.first_filter(), row * config.columns, full, mine && dys);
      ptx::load_rows_if(to, &maps.x, part.first_channel(), (at.row + input_row) * config.columns, full,
                        mine && !dys);
    } else {
      ptx::load_box_if(to, &maps.dy, part.first_filter(), at.column, row, at.image, 0, full, mine && dys);
      ptx::load_box_if(to, &maps.x, part.first_channel(), at.column * a.stride_w - a.pad_left,
                       at.row * a.stride_h - a.pad_top + input_row, at.image, 0, full, mine && !dys);
    }
    ring.next();
    if (++slice == config.slices()) slice = 0, chunk += config.split;
  }
};

// Numbers rounded to TF32; what is not finite stays as it is, and makes sums that are computed again.
__device__ __forceinline__ unsigned rounded_tf32(unsigned bits) {
  return (bits & 0x7f800000) == 0x7f800000 ? bits : bits + 0x1000;
}

// Reads words of x and dy: of a slice, or of tensors that may begin anywhere.
template <WeightGradientTf32Sm90 config>
struct Words {
  static constexpr ConvExtents a = config.conv;
  const float *x, *dy;
  int first_filter, first_channel;
  WeightGradientTf32Sm90::Place at;  // of the stage

  // A word of a filter, or channel, by the row and column of the stage; `slice`: where its rows begin.
  __device__ __forceinline__ unsigned gradient(unsigned slice, int first_row, int row, int column,
                                               int filter) const {
    if constexpr (config.aligned)
      return ptx::ld_shared(slice + 4 * ((row * config.columns + column) * config.tile_rows() + filter));
    const int p = at.row + first_row + row, q = at.column + column;
    filter += first_filter;
    const long long pixel =
        config.flat() ? 1LL * p * config.columns + q : (1LL * at.image * a.p + p) * a.q + q;
    const bool inside = filter < a.k && (config.flat() ? pixel < config.all_pixels() : p < a.p && q < a.q);
    return inside ? __float_as_uint(dy[pixel * a.k + filter]) : 0;
  }
  __device__ __forceinline__ unsigned input(unsigned slice, int first_row, int row, int column,
                                            int channel) const {
    if constexpr (config.aligned)
      return ptx::ld_shared(slice +
                            4 * ((row * config.input_columns() + column) * config.tile_channels() + channel));
    const int h = at.row * a.stride_h - a.pad_top + first_row + row;
    const int w = at.column * a.stride_w - a.pad_left + column;
    channel += first_channel;
    const long long pixel =
        config.flat() ? 1LL * h * config.columns + w : (1LL * at.image * a.h + h) * a.w + w;
    const bool inside = channel < a.c && (config.flat() ? pixel < config.all_pixels()
                                                        : h >= 0 && h < a.h && w >= 0 && w < a.w);
    return inside ? __float_as_uint(x[pixel * a.c + channel]) : 0;
  }
};

// Sums of dy of a lane's filters, 32 apart.
template <WeightGradientTf32Sm90 config>
using BiasSums = float[config.bias ? config.tile_rows() / 32 : 1];

// A warp's fours of pixels of a slice of dy, of as many rows as the stage still has.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_gradients(const Words<config>& words, unsigned slice, unsigned to,
                                                    int first_row, int warp, BiasSums<config>& sums) {
  constexpr int kFours = config.row_fours(), kAll = config.tile_rows() / 32;
  constexpr int kTogether = kAll % 4 == 0 ? 4 : kAll % 3 == 0 ? 3 : kAll;  // thirty-twos of filters
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int fours = lesser(config.gradient_slice_rows(), config.rows - first_row) * kFours;
#pragma unroll 1
  for (int four = warp; four < fours; four += config.transposing_warps()) {
    const unsigned there = to + (first_row * kFours + four) * config.gradient_four() + 16 * lane;
    const int row = four / kFours, column = four % kFours * 4;
#pragma unroll
    for (int first = 0; first < kAll; first += kTogether) {
      unsigned some[kTogether][4];
#pragma unroll
      for (int j = 0; j < kTogether; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          some[j][i] = words.gradient(slice, first_row, row, column + i, 32 * (first + j) + lane);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (config.bias) sums[first + j] += __uint_as_float(some[j][i]);
          some[j][i] = rounded_tf32(some[j][i]);
        }
        ptx::st_shared_v4(there + 512 * (first + j), some[j]);
      }
    }
  }
}

// As above, of x: pixels that taps of a row meet are read once.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_inputs(const Words<config>& words, unsigned slice, unsigned to,
                                                 int first_row, int warp) {
  constexpr ConvExtents a = config.conv;
  constexpr int kFours = config.row_fours(), kTogether = 2;  // thirty-twos of channels, half a block each
  constexpr int kWords = config.met_columns();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int fours = lesser(config.input_slice_rows(), config.input_rows() - first_row) * kFours;
#pragma unroll 1
  for (int four = warp; four < fours; four += config.transposing_warps()) {
    const int row = four / kFours, column = four % kFours;
    const unsigned there =
        to + (config.place_of_row(first_row + row) * kFours + column) * config.input_four() + 16 * lane;
#pragma unroll
    for (int block = 0; block < config.channel_blocks; ++block) {
      unsigned some[kTogether][kWords];
      for_constants<0, kWords>([&](auto word) {
        if constexpr (config.meets(word.value))
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
            some[j][word.value] = rounded_tf32(words.input(
                slice, first_row, row, column * 4 * a.stride_w + word.value, 64 * block + 32 * j + lane));
      });
#pragma unroll
      for (int j = 0; j < kTogether; ++j)
#pragma unroll
        for (int s = 0; s < a.s; ++s) {
          unsigned four_words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) four_words[i] = some[j][s * a.dilation_w + i * a.stride_w];
          ptx::st_shared_v4(there + 16 * ((block * a.s + s) * 64 + 32 * j), four_words);
        }
    }
  }
}

// The work of transposing_warps(), of which this is `warp`.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_slices(const Maps& maps, const float* __restrict__ x,
                                                 const float* __restrict__ dy, float* __restrict__ partial,
                                                 unsigned smem, int warp) {
  constexpr auto kAt = config.smem();
  constexpr int kAhead = config.slice_places() - 2;  // what the others still read is not waited for
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Asking<config> asking{maps, smem};
  const Part<config> part;
  Words<config> words{x, dy, part.first_filter(), part.first_channel(), {}};
  BiasSums<config> sums = {};
  Ring<config.stages> stages;
  Ring<config.slice_places()> ring;
  if (config.aligned && warp == 0)
#pragma unroll 1
    for (int i = 0; i < kAhead; ++i) asking.ask();
#pragma unroll 1
  for (int chunk = part.rank; chunk < part.kChunks; chunk += config.split) {
    words.at = config.place_of(chunk);
    stages.wait_empty(smem + kAt.empty);
    const unsigned to = smem + kAt.stages + stages.slot * config.stage_bytes();
#pragma unroll 1
    for (int slice = 0; slice < config.slices(); ++slice) {
      const unsigned from = smem + kAt.slices + ring.slot * config.slice_bytes();
      if constexpr (config.aligned) {
        if (warp == 0) asking.ask();
        ring.wait_full(smem + kAt.slices_full);
      }
      if (slice < config.gradient_slices())
        transpose_gradients<config>(words, from, to, slice * config.gradient_slice_rows(), warp, sums);
      else
        transpose_inputs<config>(words, from, to + config.gradient_bytes(),
                                 (slice - config.gradient_slices()) * config.input_slice_rows(), warp);
      if constexpr (config.aligned) {
        __syncwarp();
        ptx::mbarrier_arrive_if(ring.barrier(smem + kAt.slices_empty), lane == 0);
        ring.next();
      }
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(stages.barrier(smem + kAt.full));
    stages.next();
  }
  if constexpr (config.bias) {
    if (part.tile % config.column_tiles() != 0) return;
    float* const to =
        partial + config.biases_at() + part.rank * config.bias_words() +
        (part.tile / config.column_tiles() * config.transposing_warps() + warp) * config.tile_rows();
#pragma unroll
    for (int i = 0; i < config.tile_rows() / 32; ++i) to[32 * i + lane] = sums[i];
  }
}

}  // namespace convtune::weight_gradient_tf32_sm90
