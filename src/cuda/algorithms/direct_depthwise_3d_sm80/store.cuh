// How direct_depthwise_3d_sm80.cuh stores a strip of a frame, with what is added to it; and a tile computed
// exactly, where a weight is not finite.
#pragma once

#include "cuda/algorithms/direct_depthwise_3d_sm80/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_depthwise_3d_sm80 {

// Locates a thread's strip in y and in the residual.
template <DirectDepthwise3dSm80 config>
struct Strip {
  static constexpr ConvExtents a = config.conv;
  static constexpr bool kHalves = a.x_type != ElementType::f32;
  // Outputs that are stored at once: all columns of a row in NCHW, a word of channels in NHWC.
  static constexpr bool kRowAtOnce = !a.nhwc && config.aligned && a.q % DirectDepthwise3dSm80::kVector == 0;
  static constexpr bool kWord = a.nhwc && kHalves && config.width == 2 && config.aligned && a.c % 2 == 0;
  using Stored = Element<config>;
  using Values = Channels<config>[config.rows][config.columns];
  int p, q;
  bool both;  // channels of a word exist

  __device__ __forceinline__ bool has(int row, int column) const {
    return (a.p % config.rows == 0 || p + row < a.p) && (a.q % config.columns == 0 || q + column < a.q);
  }
  __device__ static constexpr int offset(int row, int column) {
    return a.nhwc ? (row * a.q + column) * a.c : row * a.q + column;
  }
  static __device__ __forceinline__ float widened(Stored value) {
    if constexpr (kHalves)
      return low_half<a.x_type>(value);
    else
      return value;
  }

  // Reads the residuals of the strip at `from`.
  __device__ __forceinline__ void load(Values& to, const Stored* __restrict__ from) const {
#pragma unroll
    for (int row = 0; row < config.rows; ++row) {
      if constexpr (kRowAtOnce) {
        if (!has(row, 0)) continue;
        if constexpr (kHalves) {
          const uint2 four = *reinterpret_cast<const uint2*>(from + offset(row, 0));
          to[row][0][0] = low_half<a.x_type>(four.x), to[row][1][0] = high_half<a.x_type>(four.x);
          to[row][2][0] = low_half<a.x_type>(four.y), to[row][3][0] = high_half<a.x_type>(four.y);
        } else {
          const float4 four = *reinterpret_cast<const float4*>(from + offset(row, 0));
          to[row][0][0] = four.x, to[row][1][0] = four.y, to[row][2][0] = four.z, to[row][3][0] = four.w;
        }
      } else {
#pragma unroll
        for (int column = 0; column < config.columns; ++column) {
          if (!has(row, column)) continue;
          const Stored* const at = from + offset(row, column);
          if constexpr (kWord) {
            const unsigned word = *reinterpret_cast<const unsigned*>(at);
            to[row][column][0] = low_half<a.x_type>(word);
            to[row][column][config.width - 1] = high_half<a.x_type>(word);
          } else {
            to[row][column][0] = widened(*at);
            if (config.width == 2 && both) to[row][column][config.width - 1] = widened(at[1]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store(const Values& sums, const Values& added, const Channels<config>& bias,
                                        Stored* __restrict__ to) const {
#pragma unroll
    for (int row = 0; row < config.rows; ++row) {
      float values[config.columns][config.width];
#pragma unroll
      for (int column = 0; column < config.columns; ++column)
#pragma unroll
        for (int channel = 0; channel < config.width; ++channel)
          values[column][channel] =
              add<config.conv>(sums[row][column][channel], bias[channel], added[row][column][channel]);
      if constexpr (kHalves && (kRowAtOnce || config.width == 2)) {
        constexpr int kWords = config.columns * config.width / 2;
        unsigned words[kWords];
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          constexpr int kColumns = config.width == 2 ? 1 : 2;  // columns that a word holds
          float two[2] = {values[i * kColumns][0], values[i * kColumns + kColumns - 1][config.width - 1]};
          words[i] = activate_halves<config.conv>(two);
        }
        if constexpr (kRowAtOnce) {
          if (has(row, 0)) *reinterpret_cast<uint2*>(to + offset(row, 0)) = make_uint2(words[0], words[1]);
        } else {
#pragma unroll
          for (int column = 0; column < config.columns; ++column) {
            Stored* const at = to + offset(row, column);
            if constexpr (kWord) {
              ptx::st_global_if(reinterpret_cast<float*>(at), __uint_as_float(words[column]),
                                has(row, column));
            } else if (has(row, column)) {
              at[0] = static_cast<unsigned short>(words[column]);
              if (both) at[1] = static_cast<unsigned short>(words[column] >> 16);
            }
          }
        }
      } else {
#pragma unroll
        for (int column = 0; column < config.columns; ++column)
          values[column][0] = activate<config.conv>(values[column][0]);
        if constexpr (kRowAtOnce) {
          const float four[4] = {values[0][0], values[1][0], values[2][0], values[3][0]};
          ptx::st_global_v4_if(to + offset(row, 0), four, has(row, 0));
        } else {
#pragma unroll
          for (int column = 0; column < config.columns; ++column)
            if (has(row, column)) store_element<a.y_type>(to, offset(row, column), values[column][0]);
        }
      }
    }
  }
};

// Everything, slowly: where a weight is not finite.
template <DirectDepthwise3dSm80 config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kTile = config.tile_rows() * config.tile_columns() * config.channels;
#pragma unroll 1
  for (long long i = threadIdx.x; i < 1LL * kTile * config.frames; i += config.threads()) {
    const int in_tile = static_cast<int>(i % kTile), at = in_tile / config.channels;
    const int z = part.march * config.frames + static_cast<int>(i / kTile);
    const int p = part.band * config.tile_rows() + at / config.tile_columns();
    const int q = part.side * config.tile_columns() + at % config.tile_columns();
    const int channel = part.first_channel + in_tile % config.channels;
    if (z >= a.z || p >= a.p || q >= a.q || !part.has_channel(in_tile % config.channels)) continue;
    const int image = a.nhwc ? part.image : channel / a.c;
    store_exact_output<config>(x, packed, residual, y, image, a.nhwc ? channel : channel % a.c, p, q, z);
  }
}

}  // namespace convtune::direct_depthwise_3d_sm80
