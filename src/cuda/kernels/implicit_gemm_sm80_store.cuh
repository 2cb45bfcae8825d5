// The storing half of implicit_gemm_sm80.cuh: sums, bias and activation into the output; and the outputs
// again whose sums are not finite.
#pragma once

#include "exact_sum.cuh"
#include "implicit_gemm_sm80_load.cuh"

namespace convtune::implicit_gemm {

template <ImplicitGemmSm80 config>
using Sums = float[config.tiles_m()][config.tiles_n()][4];

__device__ __forceinline__ bool is_finite(float value) {
  return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

__device__ __forceinline__ float activate(const Conv2dExtents& a, float value) {
  return a.relu && value < 0 ? 0.0f : value;  // NaN stays
}

template <ImplicitGemmSm80 config>
class Storer {
 public:
  // `wide`: whether y is aligned to 16 bytes.
  __device__ __forceinline__ Storer(const Conv2dExtents& a, const Tile& tile, const float* x,
                                    const unsigned* packed, float* y, const Smem<config>& smem, bool wide)
      : a_(a), tile_(tile), x_(x), packed_(packed), y_(y), smem_(smem) {
    bias_ = reinterpret_cast<const float*>(packed) + config.bias_at(a) +
            static_cast<long long>(tile.group) * a.group_filters();
    plane_ = static_cast<long long>(a.p) * a.q;
    wide_ = wide && (config.problem.nhwc ? a.k % 4 == 0 && a.group_filters() % 4 == 0 : plane_ % 4 == 0);
    const int warp = threadIdx.x / 32;
    warp_m_ = tile.m_block * config.block_m + warp / config.warps_n * config.warp_m();
    warp_n_ = warp % config.warps_n * config.warp_n();
  }

  // Every thread of the block must arrive.
  __device__ __forceinline__ void store(Sums<config>& sums) {
    if constexpr (config.problem.nhwc)
      store_last(sums);
    else if (wide_)
      store_first(sums);
    else
      store_staged(sums);
    if (__syncthreads_or(infinite_)) repair();
  }

 private:
  // What a sum becomes. One that is not finite may come of padding or of rounding: it is marked.
  __device__ __forceinline__ float finish(float sum, float bias) {
    if (is_finite(sum)) return activate(a_, sum + bias);
    infinite_ = true;
    return __uint_as_float(0x7fffffffu);
  }
  __device__ __forceinline__ float bias_of(int filter) const {
    return filter < a_.group_filters() ? __ldg(bias_ + filter) : 0.0f;
  }

  // Channels first. A thread's four products of one column are four neighbouring pixels.
  __device__ __forceinline__ void store_first(Sums<config>& sums) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < config.tiles_m(); ++tile)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int filter = warp_m_ + config.filter_of(tile, upper, lane / 4);
        const float bias = bias_of(filter);
#pragma unroll
        for (int column = 0; column < config.tiles_n() / 2; ++column) {
          const int first = column / 2 * 4, odd = column % 2;
          const long long at = smem_.outputs[warp_n_ + config.position_of(first, lane % 4 * 2 + odd)];
          float values[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) values[i] = finish(sums[tile][first + i][2 * upper + odd], bias);
          if (at >= 0 && filter < a_.group_filters())
            *reinterpret_cast<float4*>(y_ + at + filter * plane_) =
                make_float4(values[0], values[1], values[2], values[3]);
        }
      }
  }

  // Images whose size is not a multiple of 4 pixels: through shared memory, 16 filters of a warp at a time,
  // so that a warp writes 32 pixels in a row.
  __device__ __forceinline__ void store_staged(Sums<config>& sums) {
    constexpr int kPitch = config.staging_pitch(), kPixels = config.warp_n() / 32;
    const int lane = threadIdx.x % 32;
    float* staging = reinterpret_cast<float*>(smem_.ring) + threadIdx.x / 32 * (16 * kPitch);
    long long at[kPixels];
#pragma unroll
    for (int i = 0; i < kPixels; ++i) at[i] = smem_.outputs[warp_n_ + 32 * i + lane];
    __syncthreads();  // the ring is read
#pragma unroll
    for (int tile = 0; tile < config.tiles_m(); ++tile) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const float bias = bias_of(warp_m_ + config.filter_of(tile, upper, lane / 4));
#pragma unroll
        for (int column = 0; column < config.tiles_n() / 2; ++column) {
          const int first = column / 2 * 4, odd = column % 2;
          float values[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) values[i] = finish(sums[tile][first + i][2 * upper + odd], bias);
          *reinterpret_cast<float4*>(staging + (8 * upper + lane / 4) * kPitch +
                                     config.position_of(first, lane % 4 * 2 + odd)) =
              make_float4(values[0], values[1], values[2], values[3]);
        }
      }
      __syncwarp();
#pragma unroll 4
      for (int row = 0; row < 16; ++row) {
        const int filter = warp_m_ + 16 * tile + row;
        if (filter >= a_.group_filters()) break;
#pragma unroll
        for (int i = 0; i < kPixels; ++i)
          if (at[i] >= 0) y_[at[i] + filter * plane_] = staging[row * kPitch + 32 * i + lane];
      }
      __syncwarp();
    }
  }

  // Channels last. A thread's sums of two products are four neighbouring filters.
  __device__ __forceinline__ void store_last(Sums<config>& sums) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < config.tiles_m(); tile += 2) {
      constexpr int kTiles = config.tiles_m();
      const int count = tile + 1 < kTiles ? 4 : 2;
      const int filter = warp_m_ + config.filter_of(tile, 0, lane / 4);
      float bias[4];
#pragma unroll
      for (int i = 0; i < count; ++i) bias[i] = bias_of(filter + i);
#pragma unroll
      for (int column = 0; column < config.tiles_n() * 2; ++column) {
        const long long at =
            smem_.outputs[warp_n_ + config.position_of(column / 2, lane % 4 * 2 + column % 2)];
        float values[4];
#pragma unroll
        for (int i = 0; i < count; ++i)
          values[i] = finish(
              sums[tile + i / 2 < kTiles ? tile + i / 2 : tile][column / 2][i % 2 * 2 + column % 2], bias[i]);
        if (at < 0) continue;
        float* to = y_ + at + filter;
        if (wide_ && count == 4) {
          if (filter < a_.group_filters())
            *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
        } else {
#pragma unroll
          for (int i = 0; i < count; ++i)
            if (filter + i < a_.group_filters()) to[i] = values[i];
        }
      }
    }
  }

  // What is marked, from the tensors as they came.
  __device__ __forceinline__ void repair() {
#pragma unroll 1
    for (int i = threadIdx.x; i < config.block_m * config.block_n; i += config.threads()) {
      const int filter = tile_.m_block * config.block_m + i / config.block_n, place = i % config.block_n;
      const long long at = smem_.outputs[place];
      if (at < 0 || filter >= a_.group_filters()) continue;
      float* to = y_ + at + (config.problem.nhwc ? filter : filter * plane_);
      if (*to == *to) continue;
      const Position here = position(a_, tile_.first_position + place);
      const float sum = exact_sum(a_, x_, reinterpret_cast<const float*>(packed_) + config.weights_at(a_),
                                  here.image, tile_.group * a_.group_filters() + filter, here.p, here.q);
      *to = activate(a_, sum + bias_[filter]);
    }
  }

  const Conv2dExtents& a_;
  const Tile& tile_;
  const float* x_;
  const unsigned* packed_;
  float* y_;
  const Smem<config>& smem_;
  const float* bias_;
  long long plane_;
  bool wide_, infinite_ = false;
  int warp_m_, warp_n_;
};

}  // namespace convtune::implicit_gemm
