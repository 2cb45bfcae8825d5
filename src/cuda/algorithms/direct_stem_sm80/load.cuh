// How direct_stem_sm80.cuh loads: which outputs a block has, its weights stage after stage, its window of x.
#pragma once

#include "cuda/algorithms/direct_stem_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/tf32.cuh"

namespace convtune::direct_stem_sm80 {

// The first output of a block.
struct Place {
  int frame, p, q, filter, filter_block;  // frame: of all images
};
template <DirectStemSm80 config>
__device__ Place place_of(int block) {
  constexpr int kFilterBlocks = config.filter_blocks(), kSplits = config.splits(), kBands = config.bands();
  // Blocks that need the same input follow each other.
  const int filter_block = block % kFilterBlocks, split = block / kFilterBlocks % kSplits;
  const int band = block / (kFilterBlocks * kSplits) % kBands;
  return {block / (kFilterBlocks * kSplits * kBands), band * config.band(), split * config.columns(),
          filter_block * config.filters(), filter_block};
}
// Kept in shared memory, and not in registers through the products.
template <DirectStemSm80 config>
__device__ void keep_place(int* kept, const Place& at) {
  if (threadIdx.x == 0) *reinterpret_cast<int4*>(kept) = make_int4(at.frame, at.p, at.q, at.filter_block);
}
template <DirectStemSm80 config>
__device__ Place kept_place(const int* kept) {
  const int4 at = *reinterpret_cast<const int4*>(kept);
  const int filter_block = config.filter_blocks() > 1 ? at.w : 0;
  return {at.x, config.bands() > 1 ? at.y : 0, config.splits() > 1 ? at.z : 0,
          filter_block * config.filters(), filter_block};
}
// The first piece of 16 bytes of the packed weights that this thread copies, this thread's first piece of 16
// bytes, in a block's first stage.
template <DirectStemSm80 config>
__device__ unsigned first_piece(int filter_block) {
  constexpr unsigned kPieces = config.k_steps() * config.step_floats() / 4;
  return filter_block * kPieces + threadIdx.x;
}

// A stage of weights, as a group of cp.async of its own: an empty one behind the last stage. `left`: bodies
// of the loop behind the one at hand.
template <DirectStemSm80 config, int kStage, int kSlot>
__device__ __forceinline__ void load_stage(unsigned ring, const float* packed, unsigned piece, int left) {
  constexpr int kBegin = config.stage_begin(kStage);
  constexpr int kSteps = config.resident() ? config.k_steps() : config.stage_begin(kStage + 1) - kBegin;
  constexpr int kStep = config.step_floats() / 4, kPieces = kSteps * kStep;  // pieces of 16 bytes
  constexpr int kTimes = ceil_div(kPieces, config.threads());
  if (left >= config.stage_ahead(kStage))
    for_constants<0, kTimes>([&](auto time) {
      constexpr int kFirst = time.value * config.threads();
      if (kFirst + config.threads() <= kPieces || static_cast<int>(threadIdx.x) < kPieces - kFirst)
        ptx::cp_async_16_piece<kSlot * config.stage_floats() * 4 + kFirst * 16, -config.body_steps() * kStep,
                               ((config.bodies() - 1) * config.body_steps() + kBegin) * kStep + kFirst>(
            ring, packed, piece, left);
    });
  ptx::cp_async_commit_group();
}

// kWidth floats of one load or store.
template <int kWidth>
struct alignas(4 * kWidth) Chunk {
  float values[kWidth];
};

// Fills the window: a warp, or a part of it, takes a row; zeros where there is no input. Whether all of it is
// finite, as TF32 too. `kNumbers` of a thread are on their way at once.
template <DirectStemSm80 config, int kWidth, int kNumbers>
__device__ __forceinline__ bool load_window(float* window, const float* __restrict__ x, const Place& at) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPlanes = config.planes();
  constexpr int kChunks = config.window_columns() / kWidth;  // per row
  constexpr int kLanes = kChunks > 16 ? 32 : kChunks > 8 ? 16 : kChunks > 4 ? 8 : 4;
  constexpr int kColumns = ceil_div(kChunks, kLanes);  // chunks of a thread, in a row
  constexpr int kStep = config.threads() / kLanes;     // rows at a time
  constexpr int kInFlight = kNumbers / kWidth;
  constexpr int kMostRows = ceil_div(config.smem_rows(), kStep);  // per thread
  constexpr int kBatches = ceil_div(kMostRows * kColumns, kInFlight);
  constexpr int kRows = ceil_div(kMostRows, kBatches);  // with loads in flight
  const int lane = threadIdx.x % kLanes;
  const float* image = x + a.input_offset(at.frame / a.z, 0, 0, 0, 0);
  const int first_frame = at.frame % a.z * a.stride_d - a.pad_front;
  float largest = 0;
#pragma unroll 1
  for (int first = threadIdx.x / kLanes; first < config.smem_rows(); first += kStep * kRows) {
    Chunk<kWidth> chunks[kRows][kColumns];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kStep, input_row = config.input_row(at.p, row / kPlanes);
      const int plane = row % kPlanes, frame = first_frame + plane % a.t * a.dilation_d;
      const bool inside = row < config.window_rows() * kPlanes && input_row >= 0 && input_row < a.h &&
                          (!a.has_depth() || (frame >= 0 && frame < a.d));
      const int in_image = a.has_depth() ? plane / a.t * a.d + frame : plane;
      const float* from = image + (in_image * a.h + input_row) * static_cast<long long>(a.w);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        // Its columns are all inside, or none: the row's width is a multiple of theirs.
        const int column = config.input_column(at.q, (lane + kLanes * j) * kWidth);
        Chunk<kWidth>& chunk = chunks[i][j];
        chunk = {};
        if (inside && column >= 0 && column < a.w) {
          if constexpr (kWidth == 4) {
            const float4 got = __ldg(reinterpret_cast<const float4*>(from + column));
            chunk.values[0] = got.x, chunk.values[1] = got.y, chunk.values[2] = got.z,
            chunk.values[3] = got.w;
          } else if constexpr (kWidth == 2) {
            const float2 got = __ldg(reinterpret_cast<const float2*>(from + column));
            chunk.values[0] = got.x, chunk.values[1] = got.y;
          } else {
            chunk.values[0] = __ldg(from + column);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kStep;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        Chunk<kWidth> rounded;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const float value = chunks[i][j].values[k];
          largest = ptx::max_nan(largest, fabsf(value));
          rounded.values[k] = __uint_as_float(ptx::cvt_rna_tf32(value));
        }
        if (row < config.smem_rows() && (kLanes * (j + 1) <= kChunks || lane + kLanes * j < kChunks))
          *reinterpret_cast<Chunk<kWidth>*>(window + row * config.row_pitch + (lane + kLanes * j) * kWidth) =
              rounded;
      }
    }
  }
  return largest < kTf32Overflow;  // no for NaN
}

}  // namespace convtune::direct_stem_sm80
