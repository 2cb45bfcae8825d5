// How x and dy come in weight_gradient_half_nchw_sm90.cuh: one warp asks TMA for slices of both, a few ahead;
// the others read each by matrix loads, which transpose, and write pixels to their positions, the channels
// beside each other in the exchanged order that wgmma reads. What a slice has besides the rows of its stage
// is dropped; rows that the tensors do not have are zeros, which TMA brings.
#pragma once

#include "cuda/algorithms/weight_gradient_half_sm90/load.cuh"
#include "cuda/ptx/sm80.cuh"

namespace convtune::weight_gradient_half_nchw_sm90 {

using weight_gradient_half_sm90::Maps;
using weight_gradient_half_sm90::Part;

// A slice of a stage by its number: those of dy come first, of 64 filters after the other.
template <WeightGradientHalfSm90 config>
struct Slice {
  static constexpr int kPieces = config.slice_pieces(), kPixels = config.kPiece * kPieces;
  static constexpr int kOfBlock = config.gradient_slices(kPieces), kAll = config.slices(kPieces);
  static constexpr int kOfInput = config.input_slices(kPieces), kOfGradient = kAll - kOfInput;
  int number;
  __device__ bool of_gradient() const { return number < kOfGradient; }
  __device__ int block() const { return number / kOfBlock; }  // of 64 filters
  __device__ int first_pixel() const {                        // from the first piece on
    return (of_gradient() ? number % kOfBlock : number - kOfGradient) * kPixels;
  }
};

// By one warp, of which one thread does it.
template <WeightGradientHalfSm90 config>
__device__ void load_slices(const Maps& maps, unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  constexpr int kBytes = config.slice_bytes();
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.kSlicePlaces> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next()) {
    const int frame = config.window_frame(part.tile) * a.dilation_d - a.pad_front;
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      const WeightGradientHalfSm90::Rows rows = config.rows_of(chunk);
      const int first_gradient = config.first_of_piece(rows.row * a.q);
      const int first_input = config.first_of_piece((rows.row - a.pad_top) * a.w);
#pragma unroll 1
      for (Slice<config> slice{0}; slice.number < slice.kAll; ++slice.number) {
        const bool dys = slice.of_gradient();
        const int pixel = slice.first_pixel();
        ring.wait_empty(smem + kAt.slices_empty);
        const unsigned full = ring.barrier(smem + kAt.slices_full);
        const unsigned to = smem + kAt.slices + ring.slot * kBytes;
        ptx::mbarrier_arrive_expect_if(full, kBytes, mine);
        ptx::load_box_if(to, &maps.dy, first_gradient + pixel,
                         config.first_filter(part.tile) + slice.block() * config.kBlock, rows.frame,
                         rows.image, 0, full, mine && dys);
        ptx::load_box_if(to, &maps.x, first_input + pixel, config.window_channel(part.tile),
                         rows.frame * a.stride_d + frame, rows.image, 0, full, mine && !dys);
        ring.next();
      }
    }
  }
}

// Every so many-th piece of a slice, to [position][64 channels]. `first`: the slice's first pixel, counted
// from the first of a stage's rows, of kWidth pixels each, which begin kBefore positions behind those of a
// row.
template <WeightGradientHalfSm90 config, int kRows, int kWidth, int kBefore>
__device__ __forceinline__ void transpose(unsigned from, unsigned to, int first, int warp) {
  constexpr int kPieces = config.slice_pieces(), kPitch = config.pitch();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned channel = from + lane * (2 * config.kPiece * kPieces);
#pragma unroll 1
  for (int piece = warp; piece < kPieces; piece += config.kTransposingWarps) {
    unsigned words[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      ptx::ldmatrix_x4_trans(words[half],
                             channel + half * (config.slice_bytes() / 2) + piece * (2 * config.kPiece));
    const int pixel = first + piece * config.kPiece + lane / 4;
    const int row = pixel / kWidth, column = pixel % kWidth;
    const bool real = pixel >= 0 && row < kRows && kBefore + column < kPitch;
    const unsigned position = row * kPitch + kBefore + column;
    const unsigned there = to + position * config.kRowBytes + position % 8 * 16 + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) ptx::st_shared_if(there ^ (16 * i), words[i / 4][i % 4], real);
  }
}

// By kTransposingWarps, of which this is `warp`.
template <WeightGradientHalfSm90 config>
__device__ void transpose_slices(unsigned smem, int warp) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  Ring<config.stages> stages;
  Ring<config.kSlicePlaces> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next())
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      const WeightGradientHalfSm90::Rows rows = config.rows_of(chunk);
      const int first_gradient = rows.row * a.q, first_input = (rows.row - a.pad_top) * a.w;
      stages.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + stages.slot * config.stage_bytes();
#pragma unroll 1
      for (Slice<config> slice{0}; slice.number < slice.kAll; ++slice.number) {
        const int pixel = slice.first_pixel();
        ring.wait_full(smem + kAt.slices_full);
        const unsigned from = smem + kAt.slices + ring.slot * config.slice_bytes();
        if (slice.of_gradient())
          transpose<config, config.window, a.q, 0>(
              from, to + slice.block() * config.block_bytes(),
              config.first_of_piece(first_gradient) - first_gradient + pixel, warp);
        else
          transpose<config, config.window_rows(), a.w, a.pad_left>(
              from, to + config.gradient_bytes(), config.first_of_piece(first_input) - first_input + pixel,
              warp);
        __syncwarp();
        ptx::mbarrier_arrive_if(ring.barrier(smem + kAt.slices_empty), threadIdx.x % 32 == 0);
        ring.next();
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(stages.barrier(smem + kAt.full));
      stages.next();
    }
}

}  // namespace convtune::weight_gradient_half_nchw_sm90
