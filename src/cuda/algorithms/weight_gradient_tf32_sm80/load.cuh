// How weight_gradient_tf32_sm80.cuh fills a stage: a tile of dy and what its pixels meet of x, as they lie,
// four words at a time where it can be; zeros where there is no pixel, no filter and no channel.
#pragma once

#include "cuda/algorithms/weight_gradient_tf32_sm80/config.h"
#include "cuda/ptx/sm80.cuh"

namespace convtune::weight_gradient_tf32_sm80 {

template <int kWords>
__device__ __forceinline__ void copy(unsigned to, const float* from, bool inside) {
  if constexpr (kWords == 4)
    ptx::cp_async_16(to, from, inside ? 16 : 0);
  else
    ptx::cp_async_4(to, from, inside ? 4 : 0);
}

// Commits nothing.
template <WeightGradientTf32Sm80 config>
struct Loader {
  static constexpr ConvExtents a = config.conv;
  const float *x, *dy;
  int first_filter, first_channel;

  __device__ __forceinline__ void load(int tile, unsigned stage) const {
    const int q = tile % config.sides() * config.columns, rest = tile / config.sides();
    const int p = rest % config.bands() * config.rows, image = rest / config.bands();
    load_input(x + static_cast<long long>(image) * (a.h * a.w * a.c), p * a.stride_h - a.pad_top,
               q * a.stride_w - a.pad_left - config.early(), stage);
    load_gradient(dy + static_cast<long long>(image) * (a.p * a.q * a.k), p, q,
                  stage + 4 * config.input_size());
  }

 private:
  __device__ __forceinline__ void load_input(const float* from, int first_row, int first_column,
                                             unsigned to) const {
    constexpr int kWords = config.input_words(), kChannels = 8 * config.octets;
    constexpr int kAcross = a.nhwc ? kChannels / kWords : (config.input_columns() + kWords - 1) / kWords;
    constexpr int kMore = a.nhwc ? config.input_columns() : kChannels;
    constexpr int kAll = kAcross * kMore * config.input_rows();
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kAll; i += config.threads()) {
      const int piece = i % kAcross * kWords, rest = i / kAcross;
      const int other = a.nhwc ? rest % kMore : rest / config.input_rows();
      const int of_tile = a.nhwc ? rest / kMore : rest % config.input_rows();
      const int of_channel = a.nhwc ? piece : other, of_row = a.nhwc ? other : piece;
      const int row = first_row + of_tile, column = first_column + of_row;
      const int channel = first_channel + of_channel;
      const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(a.h) &&
                          static_cast<unsigned>(column) < static_cast<unsigned>(a.w) && channel < a.c;
      const int at = a.nhwc ? (row * a.w + column) * a.c + channel : (channel * a.h + row) * a.w + column;
      copy<kWords>(to + 4 * (of_tile * config.input_row() + of_row * config.input_pixel() +
                             of_channel * config.input_channel()),
                   from + (inside ? at : 0), inside);
    }
  }
  __device__ __forceinline__ void load_gradient(const float* from, int p, int q, unsigned to) const {
    constexpr int kWords = config.gradient_words();
    constexpr int kAcross = (a.nhwc ? config.filters : config.columns) / kWords;
    constexpr int kAll = config.filters * config.rows * config.columns / kWords;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kAll; i += config.threads()) {
      const int piece = i % kAcross * kWords, rest = i / kAcross;
      const int of_columns = a.nhwc ? rest % config.columns : piece;
      const int of_rows = a.nhwc ? rest / config.columns : rest % config.rows;
      const int of_filters = a.nhwc ? piece : rest / config.rows;
      const int row = p + of_rows, column = q + of_columns, filter = first_filter + of_filters;
      const bool inside = row < a.p && column < a.q && filter < a.k;
      const int at = a.nhwc ? (row * a.q + column) * a.k + filter : (filter * a.p + row) * a.q + column;
      copy<kWords>(to + 4 * ((of_rows * config.columns + of_columns) * config.gradient_pixel() +
                             of_filters * config.gradient_filter()),
                   from + (inside ? at : 0), inside);
    }
  }
};

}  // namespace convtune::weight_gradient_tf32_sm80
