// How x and dy come in weight_gradient_half_nchw_sm90.cuh: one warp asks TMA for slices of both, a few ahead;
// the others read each by matrix loads, which transpose, and write pixels to their positions, the channels
// beside each other in the exchanged order that wgmma reads. What a slice has besides the rows of its stage
// is dropped; rows that the tensors do not have are zeros, which TMA brings.
//
// Planes of no multiple of 16 bytes come an image's 64 channels at once, as they lie, and are read by halves.
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
  __device__ int block() const { return number / kOfBlock; }  // number of its block of 64 filters
  __device__ int first_pixel() const {                        // from the first piece on
    return (of_gradient() ? number % kOfBlock : number - kOfGradient) * kPixels;
  }
};

// By one warp, of which one thread does it.
template <WeightGradientHalfSm90 config>
__device__ void load_images(const unsigned short* __restrict__ x, const unsigned short* __restrict__ dy,
                            unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  constexpr int kX = a.h * a.w, kDy = a.p * a.q;
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.slice_places()> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next())
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk)
#pragma unroll 1
      for (int slice = 0; slice < config.stage_slices(); ++slice) {
        const bool of_x = slice == config.stage_slices() - 1;
        const int first =
            of_x ? config.window_channel(part.tile) : config.first_filter(part.tile) + slice * config.kBlock;
        const int channels = greater(lesser(config.kBlock, (of_x ? a.c : a.k) - first), 0);
        const long long plane = 1LL * chunk * (of_x ? a.c : a.k) + first;
        const unsigned bytes = 2 * channels * (of_x ? kX : kDy);
        ring.wait_empty(smem + kAt.slices_empty);
        const unsigned full = ring.barrier(smem + kAt.slices_full);
        ptx::mbarrier_arrive_expect_if(full, bytes, mine);
        ptx::bulk_copy_to_shared_if(smem + kAt.slices + ring.slot * config.slice_bytes(),
                                    of_x ? x + plane * kX : dy + plane * kDy, bytes, full,
                                    mine && channels > 0);
        ring.next();
      }
}

// As above, of planes that TMA knows.
template <WeightGradientHalfSm90 config>
__device__ void load_slices(const Maps& maps, unsigned smem) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  constexpr int kBytes = config.slice_bytes();
  const bool mine = threadIdx.x % 32 == 0;
  Ring<config.slice_places()> ring;
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
  constexpr int kTogether = 2, kStep = config.kTransposingWarps;  // pieces whose loads are under way
#pragma unroll 1
  for (int begin = warp; begin < kPieces; begin += kTogether * kStep) {
    unsigned words[kTogether][2][4], there[kTogether];
    bool real[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int piece = lesser(begin + j * kStep, kPieces - 1);  // or the last once more
#pragma unroll
      for (int half = 0; half < 2; ++half)
        ptx::ldmatrix_x4_trans(words[j][half],
                               channel + half * (config.slice_bytes() / 2) + piece * (2 * config.kPiece));
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int piece = begin + j * kStep;
      const int pixel = first + piece * config.kPiece + lane / 4;
      const int row = pixel / kWidth, column = pixel % kWidth;
      real[j] = piece < kPieces && pixel >= 0 && row < kRows && kBefore + column < kPitch;
      const unsigned position = row * kPitch + kBefore + column;
      there[j] = to + position * config.kRowBytes + position % 8 * 16 + lane % 4 * 4;
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
#pragma unroll
      for (int i = 0; i < 8; ++i) ptx::st_shared_if(there[j] ^ (16 * i), words[j][i / 4][i % 4], real[j]);
  }
}

// Every so many-th eight pixels of an image as it lies, of so many channels; behind them zeros.
template <WeightGradientHalfSm90 config, int kHeight, int kWidth, int kAbove, int kBefore, int kRows>
__device__ __forceinline__ void transpose_image(unsigned from, unsigned to, int channels, int warp) {
  constexpr int kPixels = kHeight * kWidth, kPitch = config.pitch();
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int piece = warp; piece < ceil_div(kPixels, config.kPiece); piece += config.kTransposingWarps) {
    const int pixel = piece * config.kPiece + lane / 4;
    const int row = pixel / kWidth + kAbove, column = pixel % kWidth + kBefore;
    const bool real = pixel < kPixels && row < kRows && column < kPitch;
    const unsigned at = from + 2 * (lane % 4 * 2 * kPixels + (pixel < kPixels ? pixel : 0));
    unsigned words[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      words[i] = 0;
      if (8 * i < channels)
        words[i] = ptx::ld_shared_u16(at + 16 * i * kPixels) |
                   ptx::ld_shared_u16(at + 16 * i * kPixels + 2 * kPixels) << 16;
    }
    const unsigned position = row * kPitch + column;
    const unsigned there = to + position * config.kRowBytes + position % 8 * 16 + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) ptx::st_shared_if(there ^ (16 * i), words[i], real);
  }
}

// By kTransposingWarps, of which this is `warp`.
template <WeightGradientHalfSm90 config>
__device__ void transpose_images(unsigned smem, int warp) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  Ring<config.stages> stages;
  Ring<config.slice_places()> ring;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next())
#pragma unroll 1
    for (int chunk = part.chunk; chunk < part.end(); ++chunk) {
      stages.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + stages.slot * config.stage_bytes();
#pragma unroll 1
      for (int slice = 0; slice < config.stage_slices(); ++slice) {
        ring.wait_full(smem + kAt.slices_full);
        const unsigned from = smem + kAt.slices + ring.slot * config.slice_bytes();
        if (slice < config.stage_slices() - 1)
          transpose_image<config, a.p, a.q, 0, 0, config.window>(
              from, to + config.input_bytes() + slice * config.block_bytes(),
              a.k - config.first_filter(part.tile) - slice * config.kBlock, warp);
        else
          transpose_image<config, a.h, a.w, a.pad_top, a.pad_left, config.window_rows()>(
              from, to, a.c - config.window_channel(part.tile), warp);
        __syncwarp();
        ptx::mbarrier_arrive_if(ring.barrier(smem + kAt.slices_empty), threadIdx.x % 32 == 0);
        ring.next();
      }
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive(stages.barrier(smem + kAt.full));
      stages.next();
    }
}

// As above, of slices.
template <WeightGradientHalfSm90 config>
__device__ void transpose_slices(unsigned smem, int warp) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  Ring<config.stages> stages;
  Ring<config.slice_places()> ring;
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
              from, to + config.input_bytes() + slice.block() * config.block_bytes(),
              config.first_of_piece(first_gradient) - first_gradient + pixel, warp);
        else
          transpose<config, config.window_rows(), a.w, a.pad_left>(
              from, to, config.first_of_piece(first_input) - first_input + pixel, warp);
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
