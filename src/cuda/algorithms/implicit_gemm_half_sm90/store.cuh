// How implicit_gemm_half_sm90.cuh stores a warp's sums: gathered in shared memory, so that a thread has 8
// filters of a pixel, finished there with their residual, and stored 16 bytes at a time, rows of 128 bytes.
#pragma once

#include "cuda/algorithms/implicit_gemm_half_sm90/load.cuh"
#include "cuda/ptx/sine.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::implicit_gemm_half_sm90 {

// A thread's biases of a tile, 8 of each part: on their way while it multiplies, since each store would wait
// for its own. Only where a thread's items of a part are of the same filters, and registers are left.
template <ImplicitGemmHalfSm90 config>
struct Biases {
  float4 parts[config.parts()][2];

  // Tells whether those of a part are kept here.
  static constexpr bool has(int part) {
    if (config.lying > 0) return true;  // zeros
    return config.wide_stores() && 32 % (config.part_filters(part) / 8) == 0 &&
           (config.consumers < 3 || config.filters <= 128);
  }
  __device__ __forceinline__ Biases(const float* __restrict__ bias, int first_filter) {
    for_constants<0, config.parts()>([&](auto part) {
      if constexpr (config.lying > 0) {
        for (int half = 0; half < 2; ++half) parts[part.value][half] = {0, 0, 0, 0};
      } else if constexpr (has(part.value)) {
        constexpr int kPieces = config.part_filters(part.value) / 8;
        const int column = static_cast<int>(threadIdx.x) % kPieces * 8;
        const int filter = first_filter + part.value * config.stored_filters() + column;
        const float* const from = bias + lesser(filter, config.conv.k - 8);
        for (int half = 0; half < 2; ++half)
          parts[part.value][half] = __ldg(reinterpret_cast<const float4*>(from + 4 * half));
      }
    });
  }
};

// Offset of a pixel's output in memory, negative where it has none.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ long long output_of(int pixel, int filter) {
  constexpr ConvExtents a = config.conv;
  if constexpr (!a.lies.between()) return static_cast<long long>(pixel) * a.k + filter;
  const ImplicitGemmHalfSm90::Pixel at = config.output_at(pixel);
  return a.stored_offset(at.image, filter, at.frame, at.row, at.column);
}

// The squared sine has a period of pi, so that an angle is taken modulo it.
__device__ __forceinline__ float snaked(float v, float alpha, float scale) {
  constexpr float kPi = 3.14159265f;
  const float turns = alpha * v * (1 / kPi), sine = ptx::sin_approx((turns - rintf(turns)) * kPi);
  return fmaf(scale * sine, sine, v);
}

// How far behind an output that stays what it was the Snake's lies.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ long long snake_offset(int images) {
  constexpr ConvExtents a = config.conv;
  if constexpr (config.snake < 2) return 0;
  constexpr long long kImage = a.lies.between()
                                   ? 1LL * a.lies.d * a.lies.h * a.lies.w * a.groups * a.group_results()
                                   : 1LL * a.z * a.p * a.q * a.k;
  return images * kImage;
}
// Stores an output, and what the Snake makes of it, or one of them.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ void store_snaked(unsigned short* __restrict__ y, long long output, float value,
                                             const float* __restrict__ bias, int filter, int images) {
  constexpr ConvExtents a = config.conv;
  if constexpr (config.snake != 1) store_element<a.y_type>(y, output, value);
  if constexpr (config.snake > 0)
    store_element<a.y_type>(y, output + snake_offset<config>(images),
                            snaked(a.eager ? rounded<a.y_type>(value) : value, __ldg(bias + a.k + filter),
                                   __ldg(bias + 2 * a.k + filter)));
}

// A part of a warp's outputs: 16 pixels from `pixel` on and kFilters filters from `filter` on, in its
// staging.
template <ImplicitGemmHalfSm90 config, int kFilters, bool kHasBiases>
struct Part {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kPieces = kFilters / 8;               // per pixel
  static constexpr int kItems = ceil_div(16 * kPieces, 32);  // of a thread
  static constexpr int kPixels = static_cast<int>(config.pixels());
  int pixel, filter, end_filter, end_pixel;
  unsigned staging;

  __device__ int end() const { return config.cache > 0 || config.any_batch ? end_pixel : kPixels; }

  __device__ long long output(int row, int column) const {
    return output_of<config>(pixel + row, filter + column);
  }
  __device__ unsigned at(int row, int column) const { return staging + config.staged_at(row, column); }

  // This thread's pixel and 8 filters, or not.
  struct Item {
    int row, column;
    bool real;
  };
  __device__ Item item(int index) const {
    const int i = index * 32 + static_cast<int>(threadIdx.x) % 32, row = i / kPieces,
              column = i % kPieces * 8;
    const bool real = i < 16 * kPieces && pixel + row < end() && filter + column < end_filter;
    return {row, column, real && (!a.lies.between() || output(row, column) >= 0)};
  }

  // The residual of this thread's items on its way to where it finds them again.
  static constexpr int kItemsBytes = 512;
  __device__ __forceinline__ void load(const unsigned short* __restrict__ residual, unsigned to) const {
    for_constants<0, kItems>([&](auto index) {
      const Item mine = item(index.value);
      ptx::cp_async_16_once_if(to + index.value * kItemsBytes, residual + output(mine.row, mine.column), 16,
                               mine.real);
    });
    ptx::cp_async_commit_group();
  }

  // Its alphas and scales, for the warp: a thread has four of them.
  __device__ __forceinline__ void load_snake(const float* __restrict__ bias, unsigned to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 16, column = lane % 16 * 4;
    ptx::cp_async_16_if(to + lane * 16, bias + (row + 1) * a.k + filter + column, 16,
                        column < kFilters && filter + column < a.k);
  }

  // The sums, as wgmma leaves them in a warp.
  __device__ __forceinline__ void gather(const float* sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, thread = lane % 4;
    for_constants<0, kPieces>([&](auto j) {
      ptx::st_shared_v2(at(group, 8 * j.value + 2 * thread), sums[4 * j.value], sums[4 * j.value + 1]);
      ptx::st_shared_v2(at(group + 8, 8 * j.value + 2 * thread), sums[4 * j.value + 2],
                        sums[4 * j.value + 3]);
    });
    __syncwarp();
  }

  // `eight`: this thread's biases of the part, if they are kept.
  __device__ __forceinline__ void store_item(const Item& mine, const float* __restrict__ bias,
                                             const float4 (&eight)[2], const unsigned (&residual)[4],
                                             unsigned short* __restrict__ y, unsigned snakes,
                                             long long behind) const {
    unsigned words[4], others[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned sums[4];
      ptx::ld_shared_v4(sums, at(mine.row, mine.column + 4 * half));
      float4 addends = eight[half];
      if constexpr (!kHasBiases)
        addends = __ldg(reinterpret_cast<const float4*>(bias + filter + mine.column + 4 * half));
      unsigned alphas[4], scales[4];
      if constexpr (config.snake > 0) {
        const unsigned at_snake = snakes + 4 * mine.column + 16 * half;
        ptx::ld_shared_v4(alphas, at_snake);
        ptx::ld_shared_v4(scales, at_snake + 4 * ImplicitGemmHalfSm90::kStoredFilters);
      }
      const auto finished = [&](int i, float first, float second) {
        const unsigned other = a.residual ? residual[2 * half + i / 2] : 0;
        if constexpr (config.snake > 0) {
          const float low = add<a>(__uint_as_float(sums[i]), first, low_half<a.y_type>(other));
          const float high = add<a>(__uint_as_float(sums[i + 1]), second, high_half<a.y_type>(other));
          others[2 * half + i / 2] = pack_halves<a.y_type>(
              snaked(low, __uint_as_float(alphas[i]), __uint_as_float(scales[i])),
              snaked(high, __uint_as_float(alphas[i + 1]), __uint_as_float(scales[i + 1])));
          return pack_halves<a.y_type>(low, high);
        } else {
          return finish_halves<config.conv>(__uint_as_float(sums[i]), first, __uint_as_float(sums[i + 1]),
                                            second, other);
        }
      };
      words[2 * half] = finished(0, addends.x, addends.y);
      words[2 * half + 1] = finished(2, addends.z, addends.w);
    }
    unsigned short* const to = y + output(mine.row, mine.column);
    if constexpr (config.snake != 1) *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    if constexpr (config.snake > 0)
      *reinterpret_cast<uint4*>(to + behind) = {others[0], others[1], others[2], others[3]};
  }

  // Stores what was gathered. Rolled up, which compiles faster and leaves registers to sums.
  __device__ __forceinline__ void store(const float* __restrict__ bias, const float4 (&eight)[2],
                                        unsigned residual, unsigned short* __restrict__ y, unsigned snakes,
                                        long long behind) const {
#pragma unroll 1
    for (int index = 0; index < kItems; ++index) {
      const Item mine = item(index);
      unsigned others[4] = {0, 0, 0, 0};
      if constexpr (a.residual) ptx::ld_shared_v4(others, residual + index * kItemsBytes);
      if (mine.real) store_item(mine, bias, eight, others, y, snakes, behind);
    }
    __syncwarp();  // before the next part is gathered
  }
  // As above, where rows of y begin anywhere.
  __device__ __forceinline__ void store_elements(const float* __restrict__ bias,
                                                 const unsigned short* __restrict__ residual,
                                                 unsigned short* __restrict__ y, int images) const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 32; i < 16 * kFilters; i += 32) {
      const int row = i / kFilters, column = i % kFilters;
      if (pixel + row >= end() || filter + column >= end_filter) continue;
      if (a.lies.between() && output(row, column) < 0) continue;
      const float sum = __uint_as_float(ptx::ld_shared(at(row, column)));
      float other = 0;
      if constexpr (a.residual) other = load_element<a.y_type>(residual, output(row, column));
      store_snaked<config>(
          y, output(row, column),
          finish<config.conv>(sum, config.lying > 0 ? 0 : __ldg(bias + filter + column), other), bias,
          filter + column, images);
    }
    __syncwarp();
  }
};

// Stores what a warp stores of its tile: parts of stored_filters() of each of its row blocks, one after the
// other. `first_pixel` and `first_filter` are the warp's own; the tile's group ends at `end_filter`.
template <ImplicitGemmHalfSm90 config>
struct Store {
  static constexpr int kParts = config.parts(), kAll = config.row_blocks * kParts;
  static constexpr bool kLoadsAhead = config.residual_bytes() > 0 || config.snake_bytes() > 0;
  int first_pixel, first_filter, end_filter, end_pixel;
  unsigned staging, residuals;  // the latter this thread's own: of a part and of the next
  unsigned snakes;              // the warp's own: of a part and of the next
  int images;

  template <int kIndex>
  __device__ Part<config, config.part_filters(kIndex % kParts), Biases<config>::has(kIndex % kParts)> part()
      const {
    return {first_pixel + kIndex / kParts * 64, first_filter + kIndex % kParts * config.stored_filters(),
            end_filter, end_pixel, staging};
  }
  template <int kIndex>
  __device__ unsigned residual_at() const {
    return residuals + kIndex % 2 * ImplicitGemmHalfSm90::kResidualBytes;
  }
  template <int kIndex>
  __device__ unsigned snake_at() const {
    return snakes + kIndex % 2 * ImplicitGemmHalfSm90::kSnakeBytes;
  }
  // A part ahead of where it is wanted: of the first part before the products, of others before the one
  // before.
  template <int kIndex>
  __device__ __forceinline__ void load_residual(const unsigned short* __restrict__ residual,
                                                const float* __restrict__ bias) const {
    if constexpr (config.snake_bytes() > 0 && kIndex < kAll)
      part<kIndex>().load_snake(bias, snake_at<kIndex>());
    if constexpr (config.residual_bytes() > 0 && kIndex < kAll)
      part<kIndex>().load(residual, residual_at<kIndex>());
    else if constexpr (config.snake_bytes() > 0 && kIndex < kAll)
      ptx::cp_async_commit_group();
  }
  // kPending: residuals that were asked for after this part's.
  template <int kIndex, int kPending>
  __device__ __forceinline__ void store(const float* sums, const float* __restrict__ bias,
                                        const Biases<config>& biases,
                                        const unsigned short* __restrict__ residual,
                                        unsigned short* __restrict__ y) const {
    const auto mine = part<kIndex>();
    if constexpr (config.snake_bytes() == 0) mine.gather(sums);
    if constexpr (kLoadsAhead) ptx::cp_async_wait_group<kPending>();
    if constexpr (config.snake_bytes() > 0) mine.gather(sums);  // and all have waited
    if constexpr (config.wide_stores())
      mine.store(bias, biases.parts[kIndex % kParts], residual_at<kIndex>(), y, snake_at<kIndex>(),
                 snake_offset<config>(images));
    else
      mine.store_elements(bias, residual, y, images);
  }
};

// As exact_output(), where the first frames are the cache's.
template <ImplicitGemmHalfSm90 config>
__device__ float exact_with_cache(const unsigned short* __restrict__ x,
                                  const unsigned short* __restrict__ cache, const float* __restrict__ packed,
                                  const ImplicitGemmHalfSm90::Pixel& at, int filter, float residual) {
  constexpr ConvExtents a = config.conv, kCache = cache_of<config>();
  constexpr Packed kAt = config.packed();
  constexpr ConvExtents kFrames = [] {
    ConvExtents whole = config.conv;
    whole.d += config.cache, whole.pad_front -= config.cache;
    return whole;
  }();
  const float sum = exact_sum(
      kFrames, exact_taps<config>(packed, filter), at.row * a.stride_h - a.pad_top,
      at.column * a.stride_w - a.pad_left,
      [&](int channel, int frame, int row, int column) {
        return frame < config.cache
                   ? load_element<a.x_type>(cache, kCache.input_offset(at.image, channel, frame, row, column))
                   : load_element<a.x_type>(
                         x, a.input_offset(at.image, channel, frame - config.cache, row, column));
      },
      at.frame * a.stride_d - kFrames.pad_front);
  return finish<config.conv>(sum, packed[kAt.bias_at() + filter], residual);
}

// Computes these outputs again slowly, where a weight is not finite, by a warp: those of the parts that block
// `rank` of a cluster stores, -1: all.
template <ImplicitGemmHalfSm90 config>
__device__ void store_exact(const unsigned short* __restrict__ x, const unsigned short* __restrict__ cache,
                            const float* __restrict__ packed, const unsigned short* __restrict__ residual,
                            unsigned short* __restrict__ y, int first_pixel, int first_filter, int end_filter,
                            int end_pixel, int images, int rank) {
  const float* const bias = packed + constant<config.packed().bias_at()>;
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < config.row_blocks * 16 * config.filters; i += 32) {
    const int row = i / config.filters, filter = first_filter + i % config.filters;
    const int pixel = first_pixel + row / 16 * 64 + row % 16;
    if (pixel >= end_pixel || filter >= end_filter) continue;
    if constexpr (config.split > 1 && config.doubts())
      if ((row / 16 * config.parts() + i % config.filters / config.stored_filters()) % config.split != rank)
        continue;
    const ImplicitGemmHalfSm90::Pixel at = config.output_at(pixel);
    const long long output = output_of<config>(pixel, filter);
    if (a.lies.between() && output < 0) continue;
    float other = 0;
    if constexpr (a.residual) other = load_element<a.y_type>(residual, output);
    if constexpr (config.lying > 0)
      store_element<a.y_type>(
          y, output, exact_lying_output<config>(x, packed, at.image, filter, at.row, at.column, at.frame));
    else if constexpr (config.cache > 0)
      store_snaked<config>(y, output, exact_with_cache<config>(x, cache, packed, at, filter, other), bias,
                           filter, images);
    else
      store_snaked<config>(
          y, output, exact_output<config>(x, packed, at.image, filter, at.row, at.column, other, at.frame),
          bias, filter, images);
  }
}

}  // namespace convtune::implicit_gemm_half_sm90
