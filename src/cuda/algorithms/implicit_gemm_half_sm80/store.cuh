// How implicit_gemm_half_sm80.cuh stores: a thread has 8 neighbouring filters of a pixel, 16 bytes of y, with
// their bias and residual. Four threads store 64 bytes in a row.
#pragma once

#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::implicit_gemm_half_sm80 {

template <ImplicitGemmHalfSm80 config>
using Sums = float[config.tiles_m()][config.tiles_n()][4];

template <ImplicitGemmHalfSm80 config>
struct Store {
  static constexpr ConvExtents a = config.conv;
  static constexpr bool kWide = config.aligned && a.group_filters() % 8 == 0;
  const float* bias;
  const unsigned short* residual;
  unsigned short* y;

  // All of a thread's sums: of positions from `position` on and of filters from `filter` on, the thread's
  // first; their group ends at `end`.
  __device__ __forceinline__ void operator()(const Sums<config>& sums, int position, int filter,
                                             int end) const {
    int pixels[config.tiles_m()][2];
#pragma unroll
    for (int m = 0; m < config.tiles_m(); ++m)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
        pixels[m][upper] = config.pixel_at(position + 16 * m + 8 * upper);
    for_constants<0, config.tiles_n() / 4>([&](auto some) {
      const int k = filter + 32 * some.value;
      if (k >= end) return;
      float addends[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) addends[i] = kWide || k + i < end ? __ldg(bias + k + i) : 0;
#pragma unroll
      for (int m = 0; m < config.tiles_m(); ++m)
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          const int at = pixels[m][upper];
          if (at < 0) continue;
          float eight[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) eight[i] = sums[m][4 * some.value + i / 2][2 * upper + i % 2];
          if constexpr (kWide)
            store_eight(eight, addends, static_cast<long long>(at) * a.k + k);
          else
            store_some(eight, addends, static_cast<long long>(at) * a.k + k, end - k);
        }
    });
  }

 private:
  __device__ __forceinline__ void store_eight(const float (&sums)[8], const float (&addends)[8],
                                              long long to) const {
    uint4 others{};
    if constexpr (a.residual) others = __ldg(reinterpret_cast<const uint4*>(residual + to));
    const unsigned pairs[4] = {others.x, others.y, others.z, others.w};
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      words[i] = finish_halves<config.conv>(sums[2 * i], addends[2 * i], sums[2 * i + 1], addends[2 * i + 1],
                                            pairs[i]);
    *reinterpret_cast<uint4*>(y + to) = {words[0], words[1], words[2], words[3]};
  }
  // Stores rows of y that may begin anywhere.
  __device__ __forceinline__ void store_some(const float (&sums)[8], const float (&addends)[8], long long to,
                                             int left) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= left) continue;
      float other = 0;
      if constexpr (a.residual) other = load_element<a.y_type>(residual, to + i);
      store_element<a.y_type>(y, to + i, finish<config.conv>(sums[i], addends[i], other));
    }
  }
};

// A tile's outputs, slowly, where a weight is not finite.
template <ImplicitGemmHalfSm80 config>
__device__ void store_exact(const unsigned short* __restrict__ x, const float* __restrict__ packed,
                            const unsigned short* __restrict__ residual, unsigned short* __restrict__ y,
                            int tile) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < config.rows * config.filters; i += config.threads()) {
    const int filter = config.first_filter(tile) + i % config.filters;
    const int pixel = config.pixel_at(config.first_position(tile) + i / config.filters);
    if (pixel < 0 || filter >= config.end_filter(tile)) continue;
    const ImplicitGemmHalfSm80::Pixel at = config.output_at(pixel);
    const long long output = static_cast<long long>(pixel) * a.k + filter;
    float other = 0;
    if constexpr (a.residual) other = load_element<a.y_type>(residual, output);
    store_element<a.y_type>(y, output,
                            exact_output<config>(x, packed, at.image, filter, at.row, at.column, other));
  }
}

}  // namespace convtune::implicit_gemm_half_sm80
