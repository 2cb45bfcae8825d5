// Sums over all pixels, in fp32 and always in one order: `rows` threads a channel take pixels in turns and
// leave what they have, [row][channel]; a second kernel adds that up.
#include "cuda/launch/sum_pixels.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/element.cuh"

namespace convtune {

template <SumPixels what>
__global__ void __launch_bounds__(SumPixels::kThreads)
    sum_pixels(const void* __restrict__ from, long long pixels, int rows, float* __restrict__ partial) {
  ptx::wait_for_earlier_grids(from);
  constexpr int kWidth = what.width(), kColumns = what.columns();
  const long long thread = 1LL * blockIdx.x * SumPixels::kThreads + threadIdx.x;
  const long long row = thread / kColumns;
  const int channel = static_cast<int>(thread % kColumns) * kWidth;
  if (row >= rows) return;
  float sums[kWidth] = {};
#pragma unroll 4
  for (long long pixel = row; pixel < pixels; pixel += rows) {
    if constexpr (kWidth == 1) {
      sums[0] += load_element<what.type>(from, pixel * what.channels + channel);
    } else {
      const uint4 four = static_cast<const uint4*>(from)[pixel * kColumns + channel / kWidth];
      const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if constexpr (kWidth == 8) {
          sums[2 * i] += low_half<what.type>(words[i]);
          sums[kWidth == 8 ? 2 * i + 1 : 0] += high_half<what.type>(words[i]);
        } else {
          sums[i] += __uint_as_float(words[i]);
        }
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) partial[row * what.channels + channel + i] = sums[i];
}

template <SumPixels what>
__global__ void __launch_bounds__(SumPixels::kAddThreads)
    add_up_pixels(const float* __restrict__ partial, int rows, void* __restrict__ to) {
  ptx::wait_for_earlier_grids(partial);
  __shared__ float shares[SumPixels::kAddThreads];
  const int thread = static_cast<int>(threadIdx.x), share = thread / SumPixels::kAdded;
  const int channel = static_cast<int>(blockIdx.x) * SumPixels::kAdded + thread % SumPixels::kAdded;
  float sum = 0;
  if (channel < what.channels) {
#pragma unroll 8
    for (int row = share; row < rows; row += SumPixels::kShares)
      sum += partial[1LL * row * what.channels + channel];
  }
  shares[thread] = sum;
  __syncthreads();
  if (share > 0 || channel >= what.channels) return;
  for (int i = 1; i < SumPixels::kShares; ++i) sum += shares[i * SumPixels::kAdded + thread];
  store_element<what.sum_type>(to, channel, sum);
}

}  // namespace convtune
