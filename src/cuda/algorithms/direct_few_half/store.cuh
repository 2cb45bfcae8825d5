// How direct_few_half.cuh stores: sums by column of the filter go through shared memory, where those of an
// output are added up, in the order of the filter's columns.
#pragma once

#include "cuda/algorithms/direct_few_half/load.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_few_half {

template <DirectFewHalf config>
using Sums = float[config.rows][config.sixteens][config.eights()][4];

// A warp's sums. `to`: where those of the first column of the filter stand, at the warp's first row and
// column.
template <DirectFewHalf config>
__device__ __forceinline__ void leave_sums(const Sums<config>& sums, unsigned to, int lane) {
  constexpr int kPitch = 4 * config.sums_pitch();
  const int group = lane / 4, thread = lane % 4;
  const unsigned from = to + 2 * thread * kPitch + 4 * group;
#pragma unroll
  for (int row = 0; row < config.rows; ++row)
#pragma unroll
    for (int eight = 0; eight < config.eights(); ++eight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (8 * eight + 2 * thread + i >= config.columns()) continue;
#pragma unroll
        for (int sixteen = 0; sixteen < config.sixteens; ++sixteen)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            ptx::st_shared(
                from + 4 * row * config.row_sums() + (8 * eight + i) * kPitch + 4 * (16 * sixteen + 8 * half),
                sums[row][sixteen][eight][2 * half + i]);
      }
}

// The tile's outputs, once all warps have left their sums. Threads beside each other have filters of a pixel,
// then the next pixel's: y's elements as they lie.
template <DirectFewHalf config>
__device__ __forceinline__ void store_outputs(const void* __restrict__ residual, void* __restrict__ y,
                                              const Part<config>& part, unsigned sums, unsigned biases) {
  constexpr ConvExtents a = config.conv;
  constexpr int kLine = config.tile_columns() * a.k, kAll = config.tile_rows() * kLine;
  const long long image = static_cast<long long>(part.frame) * (a.p * a.q * a.k);
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < kAll; i += config.threads()) {
    const int row = i / kLine, column = i % kLine / a.k, filter = i % a.k;
    const int p = part.p() + row, q = part.q() + column;
    if (p >= a.p || q >= a.q) continue;
    const long long at = image + (p * a.q + q) * a.k + filter;
    float more = 0;
    if constexpr (a.residual) more = load_element<a.y_type>(residual, at);
    const unsigned from =
        sums + 4 * (row * config.row_sums() + filter * config.sums_pitch() + column * a.stride_w);
    float sum = 0;
#pragma unroll
    for (int s = 0; s < a.s; ++s)
#pragma unroll
      for (int of = 0; of < config.parts; ++of) {
        float one;
        ptx::ld_shared(one, from + 4 * (of * config.tile_rows() * config.row_sums() +
                                        s * (a.k * config.sums_pitch() + a.dilation_w)));
        sum += one;
      }
    float bias;
    ptx::ld_shared(bias, biases + 4 * filter);
    store_element<a.y_type>(y, at, finish<a, SumsBegin::at_zero>(sum, bias, more));
  }
}

}  // namespace convtune::direct_few_half
