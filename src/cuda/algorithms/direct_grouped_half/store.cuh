// How direct_grouped_half.cuh stores a warp's sums: strips of outputs, finished, rounded and gathered in
// shared memory, where the residual waits, and from there in pieces of 16 bytes where the output allows it.
// Outputs may be residues of a stride, which lie between each other.
#pragma once

#include "cuda/algorithms/direct_grouped_half/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_grouped_half {

template <DirectGroupedHalf config>
using Sums = float[config.eights][config.depth()][4];

// Stores what a warp stores: strips of its filters.
template <DirectGroupedHalf config>
struct Output {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kBeside = a.lies.between() ? a.group_results() : a.k;  // filters of a pixel, at least
  static constexpr bool kWords = config.aligned && kBeside % 2 == 0,
                        kPiecewise = config.aligned && kBeside % 8 == 0;
  const unsigned short* residual;
  unsigned short* y;
  int first_filter;
  unsigned staging;
  float bias[config.eights][2];

  // Argument `image` of the functions below: the offset of a frame's outputs in y, or, between residues, its
  // number.
  __device__ static long long image_of(int frame) {
    return a.lies.between() ? frame : static_cast<long long>(frame) * (a.p * a.q * a.k);
  }
  // Offset in y; of a residue negative where y has no such element.
  __device__ static long long offset_of(long long image, int p, int q, int filter) {
    if constexpr (!a.lies.between())
      return image + (p * a.q + q) * a.k + filter;
    else
      return a.stored_offset(static_cast<int>(image) / a.z, filter, static_cast<int>(image) % a.z, p, q);
  }
  __device__ static bool exists(int p, int q, int filter, long long offset) {
    return (a.p % config.tile_rows() == 0 || p < a.p) && (a.q % config.tile_columns() == 0 || q < a.q) &&
           (a.k % config.filters == 0 || filter < a.k) && (!a.lies.between() || offset >= 0);
  }
  // Two of a residual, as a word.
  __device__ __forceinline__ unsigned more(long long image, int p, int q, int filter) const {
    if constexpr (a.lies.between() && !kWords) {  // the halves are two residues'
      unsigned word = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const long long at = offset_of(image, p, q, filter + i);
        if (exists(p, q, filter + i, at)) word |= static_cast<unsigned>(residual[at]) << 16 * i;
      }
      return word;
    }
    const long long offset = offset_of(image, p, q, filter);
    if (!exists(p, q, filter, offset)) return 0;
    const unsigned short* const from = residual + offset;
    if constexpr (kWords) return *reinterpret_cast<const unsigned*>(from);
    return from[0] | (filter + 1 < a.k ? static_cast<unsigned>(from[1]) << 16 : 0);
  }
  __device__ __forceinline__ void begin(Sums<config>& sums) const {
#pragma unroll
    for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
      for (int m = 0; m < config.depth(); ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[eight][m][i] = a.eager ? 0 : bias[eight][i % 2];
  }

  // Returns the staging offset of 8 filters of a pixel of the strip.
  __device__ __forceinline__ unsigned staged(int row, int column, int eight) const {
    return staging + 16 * config.staged_piece(row, column, eight);
  }
  // f(address in the staging, offset in y, whether it exists) for this lane's pieces of 8 filters of the rows
  // first, first + step ... of the strip that begins at p, q of the image, whose outputs begin at `image`.
  template <int kCount, class F>
  __device__ __forceinline__ void for_pieces(long long image, int p, int q, int first, int step, int lane,
                                             const F& f) const {
    constexpr int kEights = config.eights, kAll = 8 * kCount * kEights;
#pragma unroll(kAll <= 256 ? ceil_div(kAll, 32) : 4)
    for (int begin = 0; begin < kAll; begin += 32) {
      const int i = begin + lane, eight = i % kEights, filter = first_filter + 8 * eight;
      const int row = first + i / (8 * kEights) * step, column = i / kEights % 8;
      if (kAll % 32 != 0 && i >= kAll) break;
      const long long offset = offset_of(image, p + row, q + column, filter);
      f(staged(row, column, eight), offset, exists(p + row, q + column, filter, offset));
    }
  }
  // A strip's residual on its way to where its outputs will be staged, a group of copies.
  __device__ __forceinline__ void load_residual(long long image, int p, int q, int lane) const {
    if constexpr (a.residual && kPiecewise) {
      for_pieces<config.rows>(image, p, q, 0, 1, lane, [&](unsigned to, long long offset, bool exists) {
        ptx::cp_async_16(to, residual + (exists ? offset : 0), exists ? 16 : 0);
      });
      ptx::cp_async_commit_group();
    }
  }

  // The strip's sums, once its residual has come. Halves of `trace` become NaN if a sum is: so do outputs
  // then.
  __device__ __forceinline__ void store(const Sums<config>& sums, long long image, int p, int q, int lane,
                                        unsigned& trace) const {
    constexpr int kDepth = config.depth();
    const int group = lane / 4, thread = lane % 4;
#pragma unroll
    for (int m = 0; m < kDepth; ++m) {
      unsigned added[config.eights][2] = {};  // under way together
      if constexpr (a.residual) {
#pragma unroll
        for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int row = m + i * kDepth;
            if constexpr (kPiecewise)
              added[eight][i] = ptx::ld_shared(staged(row, group, eight) + 4 * thread);
            else
              added[eight][i] = more(image, p + row, q + group, first_filter + 8 * eight + 2 * thread);
          }
      }
#pragma unroll
      for (int eight = 0; eight < config.eights; ++eight)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float* const two = sums[eight][m] + 2 * i;
          const unsigned word = finish_halves<a, SumsBegin::at_bias>(two[0], bias[eight][0], two[1],
                                                                     bias[eight][1], added[eight][i]);
          if constexpr (a.y_type == ElementType::bf16)
            trace = ptx::max_nan_bf16x2(trace, word);
          else
            trace = ptx::max_nan_f16x2(trace, word);
          ptx::st_shared(staged(m + i * kDepth, group, eight) + 4 * thread, word);
        }
      __syncwarp();
      flush(image, p, q, m, lane);
    }
    __syncwarp();  // nobody writes what another still reads
  }
  // Staged outputs of rows m and m + depth.
  __device__ __forceinline__ void flush(long long image, int p, int q, int m, int lane) const {
    if constexpr (kPiecewise) {
      for_pieces<2>(image, p, q, m, config.depth(), lane, [&](unsigned from, long long offset, bool exists) {
        unsigned piece[4];
        ptx::ld_shared_v4(piece, from);
        ptx::st_global_v4_if(y + offset, piece, exists);
      });
    } else {
      constexpr int kFilters = 8 * config.eights;
#pragma unroll 1
      for (int i = lane; i < 16 * kFilters; i += 32) {
        const int row = m + i / (8 * kFilters) * config.depth(), column = i / kFilters % 8;
        const int filter = i % kFilters;
        const unsigned bits = ptx::ld_shared_u16(staged(row, column, filter / 8) + filter % 8 * 2);
        const long long offset = offset_of(image, p + row, q + column, first_filter + filter);
        if (exists(p + row, q + column, first_filter + filter, offset))
          y[offset] = static_cast<unsigned short>(bits);
      }
    }
  }
};

}  // namespace convtune::direct_grouped_half
