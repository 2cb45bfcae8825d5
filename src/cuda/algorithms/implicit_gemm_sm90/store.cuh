// How implicit_gemm_sm90.cuh stores a warp's sums: gathered in shared memory, so that its threads have
// neighbouring pixels of a filter, finished there and stored 16 bytes at a time where rows allow that.
#pragma once

#include "cuda/algorithms/implicit_gemm_sm90/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::implicit_gemm_sm90 {

// Registers of sums: of row block m, sums[m][4j + 2i + b] is pixel (2 * row_blocks) * group + 2m + i of the
// warp's, filter 8j + 2 * thread + b.
template <ImplicitGemmSm90 config>
using Sums = float[config.row_blocks][config.filters / 2];

// A tile's biases, spread over a warp: a load of one's own would have every store wait for it.
template <ImplicitGemmSm90 config>
struct Biases {
  static constexpr int kCount = ceil_div(config.filters, 32);
  float values[kCount];

  __device__ __forceinline__ Biases(const float* __restrict__ bias, int first_filter) {
    constexpr Tf32GemmFilters kFilters = config.filter_order();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      values[i] = __ldg(bias + kFilters.at(lesser(first_filter + 32 * i + static_cast<int>(threadIdx.x) % 32,
                                                  config.conv.k - 1)));
  }
  // Sums of up to 64 filters from kFirst on.
  struct Part {
    float low, high;
    __device__ float at(int filter) const {
      const float low_one = __shfl_sync(0xffffffff, low, filter % 32);
      if constexpr (config.row_blocks == 2) return low_one;
      const float high_one = __shfl_sync(0xffffffff, high, filter % 32);
      return filter < 32 ? low_one : high_one;
    }
  };
  template <int kFirst>
  __device__ __forceinline__ Part of_part() const {
    return {values[kFirst / 32], values[lesser(kFirst / 32 + 1, kCount - 1)]};
  }
};

// A part of a warp's outputs: kFilters filters from `filter` on. A thread has pixels of its own for every
// kTogether-th of them.
template <ImplicitGemmSm90 config, int kFilters>
struct Part {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kOutputs = a.z * a.p * a.q;                // per image and a filter
  static constexpr int kAtOnce = config.wide_output() ? 4 : 1;    // pixels
  static constexpr int kPieces = config.warp_pixels() / kAtOnce;  // of a filter
  static constexpr int kTogether = 32 / kPieces, kItems = ceil_div(kFilters, kTogether);
  static constexpr int kBatch = lesser(kItems, config.batch());
  static constexpr int kPitch = config.staged_pitch();
  static constexpr int kItemBytes = 128 * kAtOnce;  // per warp, where residuals wait

  // Fetches what is added to outputs, on its way to the thread that will store them. `output`: as in store();
  // `tile_filter`: the tile's first.
  __device__ static __forceinline__ void fetch(long long output, int tile_filter, int first_filter,
                                               const float* __restrict__ residual, unsigned to) {
    constexpr Tf32GemmTiles kTiles = config.tile_order();
    const int first = static_cast<int>(threadIdx.x) % 32 / kPieces, filter = first_filter + first;
    const int left =
        output < 0 ? 0 : lesser(kTiles.end_filter(tile_filter) - filter, kFilters - first);  // filters
    const float* const from = residual + (left > 0 ? output + static_cast<long long>(filter) * kOutputs : 0);
    for_constants<0, kItems>([&](auto item) {
      constexpr int kFurther = item.value * kTogether;
      ptx::cp_async_behind<4 * kAtOnce, item.value * kItemBytes, 4LL * kFurther * kOutputs>(
          to, from, kFurther < left ? 4 * kAtOnce : 0);
    });
  }

  // The sums from register kFirst on, as wgmma leaves them in a warp.
  template <int kFirst>
  __device__ static __forceinline__ void gather(const Sums<config>& sums, unsigned staging) {
    const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, thread = lane % 4;
    const unsigned to = staging + 2 * thread * kPitch + group * 8 * config.row_blocks;
    for_constants<0, kFilters / 4>([&](auto index) {
      constexpr int kAt = kFirst + index.value / 2 * 4 + index.value % 2;
      const unsigned at = to + (index.value / 2 * 8 + index.value % 2) * kPitch;
      if constexpr (config.row_blocks == 2)
        ptx::st_shared_v4(at, {sums[0][kAt], sums[0][kAt + 2], sums[1][kAt], sums[1][kAt + 2]});
      else
        ptx::st_shared_v2(at, sums[0][kAt], sums[0][kAt + 2]);
    });
    __syncwarp();
  }

  // Offset of the output of a filter that is `further` than the thread's first, negative where there is none.
  // `output`: of that first; where outputs lie between each other, the pixel.
  __device__ static __forceinline__ long long offset(long long output, int filter, int further) {
    if constexpr (a.lies.between()) {
      constexpr Tf32GemmFilters kOrder = config.filter_order();
      const ImplicitGemmSm90::Pixel at = config.output_at(static_cast<int>(output));
      return config.conv.stored_offset(at.image, kOrder.at(filter + further), at.frame, at.row, at.column);
    }
    return output + static_cast<long long>(further) * kOutputs;
  }

  // Stores what was gathered. `output`: of this thread's pixels and filter 0, below 0 where there are none.
  // `addends`: what fetch() has brought, where it does. Rolled up, which compiles faster and leaves registers
  // to sums; a batch of other residuals is on its way at once.
  __device__ static __forceinline__ void store(long long output, int tile_filter, int first_filter,
                                               const typename Biases<config>::Part& biases,
                                               const float* __restrict__ residual, float* __restrict__ y,
                                               unsigned staging, unsigned addends) {
    constexpr Tf32GemmTiles kTiles = config.tile_order();
    const int lane = static_cast<int>(threadIdx.x) % 32, piece = lane % kPieces, first = lane / kPieces;
    const int filter = first_filter + first;
    const int left =
        output < 0 ? 0 : lesser(kTiles.end_filter(tile_filter) - filter, kFilters - first);  // filters
    const unsigned from = staging + first * kPitch + piece * 4 * kAtOnce;
    if constexpr (!a.lies.between()) output += static_cast<long long>(filter) * kOutputs;
#pragma unroll 1
    for (int begin = 0; begin < kItems; begin += kBatch) {
      float bias[kBatch], others[kBatch][kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) bias[i] = biases.at(first + (begin + i) * kTogether);
      if constexpr (a.residual) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          if ((begin + i) * kTogether < left) {
            if constexpr (config.parts_ahead() > 0)
              load_shared(others[i], addends + (begin + i) * kItemBytes);
            else if (const long long at = offset(output, filter, (begin + i) * kTogether);
                     !a.lies.between() || at >= 0)
              load(others[i], residual + at);
          }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int further = (begin + i) * kTogether;
        if (further >= left) continue;
        float sums[kAtOnce];
        load_shared(sums, from + further * kPitch);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) sums[j] = finish<config.conv>(sums[j], bias[i], others[i][j]);
        const long long at = offset(output, filter, further);
        if (a.lies.between() && at < 0) continue;
        float* const to = y + at;
        if constexpr (kAtOnce == 4)
          *reinterpret_cast<float4*>(to) = {sums[0], sums[1], sums[2], sums[3]};
        else
          *to = sums[0];
      }
    }
    __syncwarp();  // before the next part is gathered
  }

  // As store(), where residues of a row are abreast: neighbouring threads have neighbouring outputs of a row
  // of the tensor, for one of the part's channels after the other; `finite`: those that taps meet, too.
  // `first_pixel`: the warp's.
  __device__ static __forceinline__ void store_abreast(int first_pixel, int tile_filter, int first_filter,
                                                       const typename Biases<config>::Part& biases,
                                                       const float* __restrict__ residual,
                                                       float* __restrict__ y, unsigned staging, bool finite) {
    constexpr Tf32GemmTiles kTiles = config.tile_order();
    constexpr Tf32GemmFilters kOrder = config.filter_order();
    constexpr int kAbreast = config.abreast(), kSpread = config.spread(), kBatch = a.residual ? 4 : 8;
    constexpr int kRow = config.warp_pixels() * kSpread, kResults = a.group_results();
    constexpr ConvLies lies = a.lies;
    constexpr long long kChannel = 1LL * lies.d * lies.h * lies.w;  // from one to the next in the tensor
    constexpr ConvExtents kRows = [] {                              // beginnings of rows
      ConvExtents rows = a;
      rows.lies.stride_w = rows.lies.crop_w = 0;
      return rows;
    }();
    const int left = lesser(kTiles.end_filter(tile_filter) - first_filter, kFilters) / kAbreast;
#pragma unroll 1
    for (int begin = 0; begin < kRow; begin += 32) {
      const int place = begin + static_cast<int>(threadIdx.x) % 32, further = place % kSpread;
      const int residue = further / lies.step_w, pixel = place / kSpread;
      const bool met = further % lies.step_w == 0 && residue < kAbreast;
      const ImplicitGemmSm90::Pixel at = config.output_at(first_pixel + pixel);
      const int column = at.column * lies.stride_w + further - lies.crop_w;
      const bool real = (kRow % 32 == 0 || place < kRow) && (finite || !met) && column >= 0 &&
                        column < lies.w && first_pixel + pixel < constant<static_cast<int>(config.pixels())>;
      const unsigned from = staging + (met ? residue * kPitch + pixel * 4 : 0);
      // Channels of one residue of rows and frames lie a plane apart: what a store asks is worked out for
      // all.
#pragma unroll 1
      for (int first = 0, run = 0; first < left; first += run) {
        const int filter = kOrder.at(first_filter + first * kAbreast);
        run = lesser(left - first, kResults - filter % kResults);
        const long long row = real ? kRows.stored_offset(at.image, filter, at.frame, at.row, at.column) : -1;
        float* to = y + row + column;
        const float* other = residual + row + column;
#pragma unroll 1
        for (int i = first; i < first + run; i += kBatch) {
          float sums[kBatch], others[kBatch] = {}, bias[kBatch];
#pragma unroll
          for (int j = 0; j < kBatch; ++j) {
            bias[j] = biases.at((i + j) * kAbreast);
            sums[j] = 0;
            if (i + j >= first + run || row < 0) continue;
            if (met) ptx::ld_shared(sums[j], from + (i + j) * kAbreast * kPitch);
            if constexpr (a.residual) others[j] = __ldg(other + j * kChannel);
          }
#pragma unroll
          for (int j = 0; j < kBatch; ++j)
            if (i + j < first + run && row >= 0)
              to[j * kChannel] = finish<config.conv>(sums[j], bias[j], others[j]);
          to += kBatch * kChannel, other += kBatch * kChannel;
        }
      }
    }
    __syncwarp();  // before the next part is gathered
  }

 private:
  __device__ static __forceinline__ void load_shared(float (&to)[kAtOnce], unsigned from) {
    if constexpr (kAtOnce == 4)
      ptx::ld_shared_v4(to[0], to[1], to[2], to[3], from);
    else
      ptx::ld_shared(to[0], from);
  }
  __device__ static __forceinline__ void load(float (&to)[kAtOnce], const float* __restrict__ from) {
    if constexpr (kAtOnce == 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from));
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
      to[0] = __ldg(from);
    }
  }
};

// Returns the offset at which a thread stores a pixel of its warp, filter 0, or that pixel where outputs lie
// between each other; negative if it stores none.
template <ImplicitGemmSm90 config>
__device__ __forceinline__ long long output_of(int first_pixel) {
  constexpr ConvExtents a = config.conv;
  using P = Part<config, 8>;
  const int pixel = first_pixel + static_cast<int>(threadIdx.x) % 32 % P::kPieces * P::kAtOnce;
  if (pixel >= constant<static_cast<int>(config.pixels())>) return -1;
  if constexpr (a.lies.between()) return pixel;
  const ImplicitGemmSm90::Pixel at = config.output_at(pixel);
  return a.output_offset(at.image, 0, at.frame, at.row, at.column);
}

// Computes these outputs again slowly, where a number is not finite. By a warp.
template <ImplicitGemmSm90 config>
__device__ void store_exact(const float* __restrict__ x, const float* __restrict__ packed,
                            const float* __restrict__ residual, float* __restrict__ y, int first_pixel,
                            int first_filter) {
  constexpr Tf32GemmTiles kTiles = config.tile_order();
  constexpr Tf32GemmFilters kOrder = config.filter_order();
  constexpr int kPixels = config.warp_pixels();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < kPixels * config.filters; i += 32) {
    const int pixel = first_pixel + i % kPixels, filter = first_filter + i / kPixels;
    if (pixel >= constant<static_cast<int>(config.pixels())> || filter >= kTiles.end_filter(first_filter))
      continue;
    const ImplicitGemmSm90::Pixel at = config.output_at(pixel);
    store_exact_output<config>(x, packed, residual, y, at.image, kOrder.at(filter), at.row, at.column,
                               at.frame);
  }
}

}  // namespace convtune::implicit_gemm_sm90
