// How depthwise_weight_gradient_half_sm90.cuh loads: a block's rows of x and dy into a ring of stages, by
// TMA.
#pragma once

#include "cuda/algorithms/depthwise_weight_gradient_half_sm90/config.h"
#include "cuda/tile/ring.cuh"

namespace convtune::depthwise_weight_gradient_half_sm90 {

struct Maps {
  ptx::TensorMap x, dy;
};

// A block's rows of x, run by run: those of a run are one unit's. Step i brings row i of dy, and the row of x
// that meets it and those before it. Before the first row of x come the rows of dy that it meets, too.
template <DepthwiseWeightGradientHalfSm90 config>
struct Walk {
  static constexpr ConvExtents a = config.conv;
  int row, last;                           // rows, counted through all units: the next, and the end
  int image = 0, column = 0;               // the run's
  int begin = 0, multiplies = 0, end = 0;  // its steps: all, and those with a row of x
  int counts = 0;                          // from which on dy is this run's alone
  __device__ __forceinline__ explicit Walk(int rank) {
    constexpr int kRows = static_cast<int>(config.rows());
    constexpr int kEach = kRows / config.split, kMore = kRows % config.split;
    row = rank * kEach + (rank < kMore ? rank : kMore);
    last = row + kEach + (rank < kMore);
  }
  __device__ __forceinline__ bool next() {
    if (row >= last) return false;
    const int unit = row / a.h, first = row % a.h;
    const int count = a.h - first < last - row ? a.h - first : last - row;
    image = unit / config.sides() * config.images();
    column = unit % config.sides() * config.unit_columns();
    multiplies = a.pad_top + first, end = multiplies + count;
    begin = multiplies - (config.depth() - 1) > 0 ? multiplies - (config.depth() - 1) : 0;
    counts = first == 0 ? begin : multiplies;
    row += count;
    return true;
  }
};

// One thread asks for all rows, as far ahead as there are stages. What has been read is the first to go from
// L2: no step reads x or dy again, and what was written before need not go to memory meanwhile.
template <DepthwiseWeightGradientHalfSm90 config>
__device__ __forceinline__ void load_rows(const Maps& maps, unsigned smem, int rank, int channel,
                                          bool copies) {
  constexpr ConvExtents a = config.conv;
  constexpr DepthwiseWeightGradientHalfSm90::Smem kAt = config.smem();
  Ring<config.stages> ring;
  Walk<config> walk(rank);
#pragma unroll 1
  while (walk.next()) {
#pragma unroll 1
    for (int step = walk.begin; step < walk.end; ++step) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned full = ring.barrier(smem + kAt.full);
      const unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
      const bool has_input = step >= walk.multiplies;
      ptx::mbarrier_arrive_expect_if(full, config.gradient_bytes() + (has_input ? config.input_bytes() : 0),
                                     copies);
      ptx::load_box_once_if(to, &maps.x, channel, walk.column - a.pad_left, step - a.pad_top, walk.image, 0,
                            full, copies && has_input);
      ptx::load_box_once_if(to + config.input_bytes(), &maps.dy, channel, walk.column, step, walk.image, 0,
                            full, copies);
      ring.next();
      __syncwarp();  // lanes that only wait keep up with the one that copies: the ring must not lap them
    }
  }
}

// A row of a tensor of so many rows and columns as TMA would bring it, eights of channels by threads.
template <DepthwiseWeightGradientHalfSm90 config, int kHeight, int kWidth, int kPitch>
__device__ __forceinline__ void copy_row(unsigned stage, int first_pixel, const unsigned short* tensor,
                                         int image, int row, int column, int channel, int thread) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = thread; i < config.images() * kPitch * config.octets; i += 32 * config.copying()) {
    const int piece = i % config.octets, pixel = i / config.octets;
    const int of_image = image + pixel / kPitch, w = column + pixel % kPitch, c = channel + 8 * piece;
    const bool has = of_image < a.n && row >= 0 && row < kHeight && w >= 0 && w < kWidth && c < a.c;
    const unsigned short* const from =
        tensor + ((static_cast<long long>(of_image) * kHeight + row) * kWidth + w) * a.c + c;
    unsigned words[4] = {};
    if (has)
#pragma unroll
      for (int word = 0; word < 4; ++word) words[word] = from[2 * word] | unsigned{from[2 * word + 1]} << 16;
    const unsigned to = stage + config.offset(first_pixel + pixel, 2 * piece);
    ptx::st_shared_v2(to, __uint_as_float(words[0]), __uint_as_float(words[1]));
    ptx::st_shared_v2(to + 8, __uint_as_float(words[2]), __uint_as_float(words[3]));
  }
}

// As load_rows(), of tensors that begin anywhere, by all threads that copy.
template <DepthwiseWeightGradientHalfSm90 config>
__device__ __forceinline__ void copy_rows(const void* __restrict__ x, const void* __restrict__ dy,
                                          unsigned smem, int rank, int channel, int thread) {
  constexpr ConvExtents a = config.conv;
  constexpr DepthwiseWeightGradientHalfSm90::Smem kAt = config.smem();
  Ring<config.stages> ring;
  Walk<config> walk(rank);
#pragma unroll 1
  while (walk.next()) {
#pragma unroll 1
    for (int step = walk.begin; step < walk.end; ++step) {
      ring.wait_empty(smem + kAt.empty);
      const unsigned to = smem + kAt.stages + ring.slot * config.stage_bytes();
      if (step >= walk.multiplies)
        copy_row<config, a.h, a.w, config.input_pitch()>(to, 0, static_cast<const unsigned short*>(x),
                                                         walk.image, step - a.pad_top,
                                                         walk.column - a.pad_left, channel, thread);
      copy_row<config, a.p, a.q, config.gradient_pitch()>(to, config.input_pixels(),
                                                          static_cast<const unsigned short*>(dy), walk.image,
                                                          step, walk.column, channel, thread);
      ptx::mbarrier_arrive(ring.barrier(smem + kAt.full));
      ring.next();
      __syncwarp();  // lanes that only wait keep up: the ring must not lap them
    }
  }
}

}  // namespace convtune::depthwise_weight_gradient_half_sm90
