// The storing half of implicit_gemm_sm80.cuh: sums, bias and activation into the output; and the outputs
// again whose sums are not finite. Four outputs are one asm statement: two thirds of what compiling took were
// a dozen instructions for each.
#pragma once

#include "cuda/algorithms/implicit_gemm_sm80/load.cuh"

namespace convtune::implicit_gemm {

template <ImplicitGemmSm80 config>
using Sums = float[config.tiles_m()][config.tiles_n()][4];

template <ImplicitGemmSm80 config>
class Storer {
 public:
  __device__ __forceinline__ Storer(const Conv2dExtents& a, const Tile& tile, const float* x,
                                    const unsigned* packed, float* y, const Smem<config>& smem)
      : a_(a), tile_(tile), x_(x), packed_(packed), y_(y), smem_(smem) {
    bias_ = reinterpret_cast<const float*>(packed) + config.bias_at(a) +
            static_cast<long long>(tile.group) * a.group_filters();
    floor_ = a.relu ? 0.0f : __uint_as_float(0xff800000u);
    plane_ = static_cast<long long>(a.p) * a.q;
    const int warp = threadIdx.x / 32;
    warp_m_ = tile.m_block * config.block_m + warp / config.warps_n * config.warp_m();
    warp_n_ = warp % config.warps_n * config.warp_n();
  }

  // Every thread of the block must arrive.
  __device__ __forceinline__ void store(Sums<config>& sums) {
    if constexpr (config.specialized)
      store<config.wide_output(config.conv)>(sums);
    else
      config.wide_output(a_) ? store<true>(sums) : store<false>(sums);
    if (__syncthreads_or(trace_ != trace_)) repair();
  }

 private:
  template <bool kWide>
  __device__ __forceinline__ void store(Sums<config>& sums) {
    if constexpr (config.conv.nhwc)
      store_last<kWide>(sums);
    else if constexpr (kWide)
      store_first(sums);
    else
      store_staged(sums);
  }

  __device__ __forceinline__ float bias_of(int filter) const {
    const int last = a_.group_filters() - 1;
    return __ldg(bias_ + (a_.group_filters() % config.block_m == 0 || filter < last ? filter : last));
  }

  // Channels first. A thread's four products of one column are four neighbouring pixels.
  __device__ __forceinline__ void store_first(Sums<config>& sums) {
    constexpr int kColumns = config.tiles_n() / 2, kRows = 2 * config.tiles_m();
    const int lane = threadIdx.x % 32, first = warp_m_ + lane / 4;
    float bias[kRows];
#pragma unroll
    for (int row = 0; row < kRows; ++row) bias[row] = bias_of(first + 8 * row);
    float* to[kColumns];
    int left[kColumns];  // filters
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const long long at = smem_.outputs[warp_n_ + config.position_of(i / 2 * 4, lane % 4 * 2 + i % 2)];
      to[i] = y_ + at + first * plane_;
      left[i] = at >= 0 ? a_.group_filters() - first : 0;
    }
    for_constants<0, kRows>([&](auto row) {
      constexpr int kTile = row.value / 2, kUpper = row.value % 2, kFilter = 8 * row.value;
      constexpr long long kBytes =
          config.specialized ? 4LL * kFilter * config.conv.p * config.conv.q : 0;
      constexpr bool kInInstruction = config.specialized && kBytes < 1 << 23;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int tile = i / 2 * 4, reg = 2 * kUpper + i % 2;
        finish_and_store<kFilter, kInInstruction ? static_cast<int>(kBytes) : 0>(
            to[i] + (kInInstruction ? 0 : kFilter * plane_), left[i], sums[kTile][tile][reg],
            sums[kTile][tile + 1][reg], sums[kTile][tile + 2][reg], sums[kTile][tile + 3][reg],
            bias[row.value], bias[row.value], bias[row.value], bias[row.value]);
      }
    });
  }

  // Images whose size is not a multiple of 4 pixels: through shared memory, 16 filters of a warp at a time,
  // so that a warp writes 32 pixels in a row.
  __device__ __forceinline__ void store_staged(Sums<config>& sums) {
    constexpr int kPitch = config.staging_pitch(), kPixels = config.warp_n() / 32;
    const int lane = threadIdx.x % 32;
    const unsigned staging = ptx::shared_address(smem_.ring) + threadIdx.x / 32 * (16 * kPitch * 4);
    const unsigned sums_to = staging + 4 * (lane / 4 * kPitch + config.position_of(0, lane % 4 * 2));
    float* to[kPixels];
    int left[kPixels];  // filters
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const long long at = smem_.outputs[warp_n_ + 32 * i + lane];
      to[i] = y_ + at + warp_m_ * plane_;
      left[i] = at >= 0 ? a_.group_filters() - warp_m_ : 0;
    }
    float bias[2 * config.tiles_m()];
#pragma unroll
    for (int row = 0; row < 2 * config.tiles_m(); ++row) bias[row] = bias_of(warp_m_ + 8 * row + lane / 4);
    __syncthreads();  // the ring is read
#pragma unroll
    for (int tile = 0; tile < config.tiles_m(); ++tile) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
#pragma unroll
        for (int i = 0; i < config.tiles_n() / 2; ++i) {
          const int first = i / 2 * 4, reg = 2 * upper + i % 2;
          finish_and_stage(sums_to + 4 * (8 * upper * kPitch + config.position_of(first, i % 2)),
                           sums[tile][first][reg], sums[tile][first + 1][reg], sums[tile][first + 2][reg],
                           sums[tile][first + 3][reg], bias[2 * tile + upper]);
        }
      __syncwarp();
#pragma unroll 1
      for (int row = 0; row < 16; row += 4) {
#pragma unroll
        for (int i = 0; i < kPixels; ++i) {
          copy_rows(to[i], staging + 4 * (row * kPitch + 32 * i + lane), left[i]);
          to[i] += 4 * plane_, left[i] -= 4;
        }
      }
      __syncwarp();
    }
  }

  // Channels last. A thread's sums of two products are four neighbouring filters.
  template <bool kWide>
  __device__ __forceinline__ void store_last(Sums<config>& sums) {
    constexpr int kTiles = config.tiles_m(), kColumns = 2 * config.tiles_n(), kAtOnce = 4;
    const int lane = threadIdx.x % 32, first = warp_m_ + config.filter_of(0, 0, lane / 4);
    const int odd = warp_m_ + config.filter_of(kTiles - 1, 0, lane / 4);  // of a tile without a neighbour
    float bias[2 * kTiles];
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i)
      bias[i] = bias_of(i / 4 * 2 + 1 < kTiles ? first + i / 4 * 32 + i % 4 : odd + i % 2);
#pragma unroll
    for (int begin = 0; begin < kColumns; begin += kAtOnce) {
      long long at[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        at[i] = smem_.outputs[warp_n_ + config.position_of((begin + i) / 2, lane % 4 * 2 + i % 2)];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int tile = (begin + i) / 2, reg = i % 2;
        float* const to = y_ + at[i] + first;
        const int left = at[i] >= 0 ? a_.group_filters() - first : 0;
        for_constants<0, kTiles / 2>([&](auto pair) {
          constexpr int kPair = pair.value;
          const auto& one = sums[2 * kPair][tile];
          const auto& other = sums[2 * kPair + 1][tile];
          if constexpr (kWide)
            finish_and_store<32 * kPair, 128 * kPair>(to, left, one[reg], one[2 + reg], other[reg],
                                                      other[2 + reg], bias[4 * kPair], bias[4 * kPair + 1],
                                                      bias[4 * kPair + 2], bias[4 * kPair + 3]);
          else
            finish_and_store_some<4>(to + 32 * kPair, left - 32 * kPair, one[reg], one[2 + reg], other[reg],
                                     other[2 + reg], bias[4 * kPair], bias[4 * kPair + 1],
                                     bias[4 * kPair + 2], bias[4 * kPair + 3]);
        });
        if constexpr (kTiles % 2 != 0) {
          const int there = at[i] >= 0 ? a_.group_filters() - odd : 0;
          finish_and_store_some<2>(y_ + at[i] + odd, there, sums[kTiles - 1][tile][reg],
                                   sums[kTiles - 1][tile][2 + reg], 0, 0, bias[2 * kTiles - 2],
                                   bias[2 * kTiles - 1], 0, 0);
        }
      }
    }
  }

// What four sums %2 to %5 with their biases %6 to %9 become, in v0 to v3, before `then`. With ReLU nothing is
// less than 0, and what is not finite is NaN; %1 is minus infinity where that does not cut. Of what is not
// finite %0 keeps trace.
#define CONVTUNE_BIAS "add.f32 v0, %2, %6;\nadd.f32 v1, %3, %7;\nadd.f32 v2, %4, %8;\nadd.f32 v3, %5, %9;\n"
#define CONVTUNE_CUT(v) "fma.rn.f32 t, " v ", 0f00000000, %1;\nmax.NaN.f32 " v ", " v ", t;\n"
#define CONVTUNE_TRACE \
  "add.f32 t, v0, v1;\nadd.f32 u, v2, v3;\nadd.f32 t, t, u;\nfma.rn.f32 %0, t, 0f00000000, %0;\n"
#define CONVTUNE_STATEMENT(cut, then, b, ...)                                                          \
  asm volatile("{\n.reg .pred p;\n.reg .f32 v<4>, t, u;\n" CONVTUNE_BIAS cut CONVTUNE_TRACE then "\n}" \
               : "+f"(trace_)                                                                          \
               : "f"(floor_), "f"(s0), "f"(s1), "f"(s2), "f"(s3), "f"(b(0)), "f"(b(1)), "f"(b(2)),     \
                 "f"(b(3)), __VA_ARGS__                                                                \
               : "memory")
#define CONVTUNE_FINISH(then, b, ...)                                                                        \
  if constexpr (config.specialized && !config.conv.relu)                                                  \
    CONVTUNE_STATEMENT("", then, b, __VA_ARGS__);                                                            \
  else                                                                                                       \
    CONVTUNE_STATEMENT(CONVTUNE_CUT("v0") CONVTUNE_CUT("v1") CONVTUNE_CUT("v2") CONVTUNE_CUT("v3"), then, b, \
                       __VA_ARGS__)
#define CONVTUNE_EACH(i) b##i
#define CONVTUNE_SAME(i) bias

  // Four in a row, kBytes behind `to`, where more than kFilter filters are left.
  template <int kFilter, int kBytes>
  __device__ __forceinline__ void finish_and_store(float* to, int left, float s0, float s1, float s2,
                                                   float s3, float b0, float b1, float b2, float b3) {
    CONVTUNE_FINISH("setp.gt.s32 p, %11, %12;\n@p st.global.v4.f32 [%10 + %13], {v0, v1, v2, v3};",
                    CONVTUNE_EACH, "l"(to), "r"(left), "n"(kFilter), "n"(kBytes));
  }
  // `left` of the four, from none on, or of the first two.
  template <int kCount>
  __device__ __forceinline__ void finish_and_store_some(float* to, int left, float s0, float s1, float s2,
                                                        float s3, float b0, float b1, float b2, float b3) {
#define CONVTUNE_TWO                                                                                      \
  "setp.gt.s32 p, %11, 0;\n@p st.global.f32 [%10], v0;\nsetp.gt.s32 p, %11, 1;\n@p st.global.f32 [%10 + " \
  "4], v1;\n"
    if constexpr (kCount == 2) {
      CONVTUNE_FINISH(CONVTUNE_TWO, CONVTUNE_EACH, "l"(to), "r"(left));
    } else {
      CONVTUNE_FINISH(CONVTUNE_TWO
                      "setp.gt.s32 p, %11, 2;\n@p st.global.f32 [%10 + 8], v2;\n"
                      "setp.gt.s32 p, %11, 3;\n@p st.global.f32 [%10 + 12], v3;",
                      CONVTUNE_EACH, "l"(to), "r"(left));
    }
#undef CONVTUNE_TWO
  }
  __device__ __forceinline__ void finish_and_stage(unsigned to, float s0, float s1, float s2, float s3,
                                                   float bias) {
    CONVTUNE_FINISH("st.shared.v4.f32 [%10], {v0, v1, v2, v3};", CONVTUNE_SAME, "r"(to));
  }
#undef CONVTUNE_SAME
#undef CONVTUNE_EACH
#undef CONVTUNE_FINISH
#undef CONVTUNE_STATEMENT
#undef CONVTUNE_TRACE
#undef CONVTUNE_CUT
#undef CONVTUNE_BIAS

  // Four rows of what is staged, one pixel; `left` of them, from none on.
  __device__ __forceinline__ void copy_rows(float* to, unsigned staged, int left) {
    constexpr long long kPlane = config.specialized ? 4LL * config.conv.p * config.conv.q : 0;
    constexpr bool kInInstruction = config.specialized && 3 * kPlane < 1 << 23;
    const long long row = kInInstruction ? 0 : plane_;
    asm volatile(
        "{\n.reg .pred p;\n.reg .f32 v<4>;\n"
        "ld.shared.f32 v0, [%4];\nld.shared.f32 v1, [%4 + %6];\n"
        "ld.shared.f32 v2, [%4 + %6 * 2];\nld.shared.f32 v3, [%4 + %6 * 3];\n"
        "setp.gt.s32 p, %5, 0;\n@p st.global.f32 [%0], v0;\n"
        "setp.gt.s32 p, %5, 1;\n@p st.global.f32 [%1 + %7], v1;\n"
        "setp.gt.s32 p, %5, 2;\n@p st.global.f32 [%2 + %7 * 2], v2;\n"
        "setp.gt.s32 p, %5, 3;\n@p st.global.f32 [%3 + %7 * 3], v3;\n}" ::"l"(to),
        "l"(to + row), "l"(to + 2 * row), "l"(to + 3 * row), "r"(staged), "r"(left),
        "n"(4 * config.staging_pitch()), "n"(kInInstruction ? static_cast<int>(kPlane) : 0)
        : "memory");
  }

  // What is not finite, from the tensors as they came.
  __device__ __forceinline__ void repair() {
#pragma unroll 1
    for (int i = threadIdx.x; i < config.block_m * config.block_n; i += config.threads()) {
      const int filter = tile_.m_block * config.block_m + i / config.block_n, place = i % config.block_n;
      const long long at = smem_.outputs[place];
      if (at < 0 || filter >= a_.group_filters()) continue;
      float* to = y_ + at + (config.conv.nhwc ? filter : filter * plane_);
      if ((__float_as_uint(*to) & 0x7f800000u) != 0x7f800000u) continue;
      const float value = exact_sum(smem_.columns[place], filter) + bias_[filter];
      *to = a_.relu && value < 0 ? 0.0f : value;  // NaN stays
    }
  }
  // In plain fp32, without padding and without rounding.
  __device__ __forceinline__ float exact_sum(const Column& window, int filter) const {
    const float* w = reinterpret_cast<const float*>(packed_) + config.weights_at(a_) +
                     (static_cast<long long>(tile_.group) * a_.group_filters() + filter) * a_.taps();
    float sum = 0;
#pragma unroll 1
    for (int channel = 0; channel < a_.group_channels(); ++channel)
#pragma unroll 1
      for (int r = 0; r < a_.r; ++r)
#pragma unroll 1
        for (int s = 0; s < a_.s; ++s, ++w) {
          const int row = r * a_.dilation_h, column = s * a_.dilation_w;
          if (inside(a_, window.row + row, window.column + column))
            sum = fmaf(x_[window.offset + a_.input_offset(0, channel, row, column)], *w, sum);
        }
    return sum;
  }

  const Conv2dExtents& a_;
  const Tile& tile_;
  const float* x_;
  const unsigned* packed_;
  float* y_;
  const Smem<config>& smem_;
  const float* bias_;
  long long plane_;
  float floor_, trace_ = 0;  // NaN: something is not finite
  int warp_m_, warp_n_;
};

}  // namespace convtune::implicit_gemm
