// Finds, for direct_fma_sm80.cuh, where a thread's strip is in its block, and how its sums come into y.
#pragma once

#include "cuda/algorithms/direct_fma_sm80/load.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_fma_sm80 {

template <DirectFmaSm80 config>
using Sums = float[config.filters][config.rows][DirectFmaSm80::kColumns];

// Locates a strip in its block.
template <DirectFmaSm80 config>
struct Place {
  int unit, chunk, row, column;  // for the band's output
  bool exists;

  __device__ Place(int strip, const Part<config>& part) {
    constexpr int kPlaces = config.places();
    // The whole warp's, which the compiler does not know.
    const int filters = config.uniform ? __shfl_sync(0xffffffff, strip / kPlaces, 0) : strip / kPlaces;
    chunk = filters % config.chunks, unit = filters / config.chunks;
    const bool in_band = !config.uniform || strip % kPlaces < config.down * config.across();
    exists = in_band && part.has_unit(unit);
    const int place = in_band ? strip % kPlaces : 0;  // others may be read, and are not stored
    row = place / config.across() * config.rows;
    column = place % config.across() * DirectFmaSm80::kColumns;
  }
  // A channel's first window in shared memory, less the columns before it in its vector.
  __device__ const float* input(const float* all, int channel) const {
    const int plane = unit * config.conv.group_channels() + channel;
    return all + (plane * config.input_rows() + row * config.conv.stride_h) * config.pitch() +
           column * config.conv.stride_w + config.first_column() / 4 * 4;
  }
  __device__ const float* weights(const float* all) const {
    return all + (config.weight_units() == 1 ? chunk : unit * config.chunks + chunk) * config.chunk_floats();
  }
};

// Staged outputs to y: what is contiguous there is written in one piece.
template <DirectFmaSm80 config>
__device__ __forceinline__ void store_staged(const float* staged, float* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPlane = config.band_rows() * a.q;  // in shared memory
  constexpr bool kWhole = config.band_rows() == a.p && config.block_filters() == a.group_filters();
  constexpr int kAll = config.units * config.block_filters() * kPlane;
  if constexpr (config.aligned && kWhole && kAll % 4 == 0) {
    if (part.has_unit(config.units - 1)) {
      float* to = y + part.plane(0, 0);
#pragma unroll 4
      for (int i = threadIdx.x * 4; i < kAll; i += config.threads() * 4)
        *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(staged + i);
      return;
    }
  }
  constexpr bool kVectors = config.aligned && a.p * static_cast<long long>(a.q) % 4 == 0 && kPlane % 4 == 0;
  constexpr int kWidth = kVectors ? 4 : 1, kPieces = kPlane / kWidth;
  const int rows = config.bands() * config.band_rows() == a.p || part.band + 1 < config.bands()
                       ? config.band_rows()
                       : a.p - part.first_row();
#pragma unroll 4
  for (int i = threadIdx.x; i < kAll / kWidth; i += config.threads()) {
    const int plane = i / kPieces, at = i % kPieces * kWidth;
    const int unit = plane / config.block_filters(), filter = plane % config.block_filters();
    if (!part.has_unit(unit) || !part.has_filter(filter) || at >= rows * a.q) continue;
    float* to = y + part.plane(unit, filter) + part.first_row() * a.q + at;
    const float* from = staged + plane * kPlane + at;
    if constexpr (kWidth == 4) {
      if (at + 4 <= rows * a.q) {
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
        continue;
      }
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (kWidth == 1 || at + j < rows * a.q) to[j] = from[j];
  }
}

// Whatever is staged has a place there in any case. Where rows are no whole vectors 4 stores with predicates
// in a statement do not work: ptxas tears them apart, and partial sectors cost up to 64 % then.
template <DirectFmaSm80 config>
__device__ __forceinline__ void store_strip(Sums<config>& sums, const Place<config>& place, float* staged,
                                            float* __restrict__ y) {
  constexpr ConvExtents a = config.conv;
  constexpr int kRow = a.q;
  constexpr long long kPlane = config.staged ? config.band_rows() * a.q : static_cast<long long>(a.p) * a.q;
  constexpr bool kVectors = a.q % 4 == 0 && (config.staged || config.aligned);
  // The block's number again: kept all the time it is spilled in one config of five hundred. On 9.0 none is
  // seen to be, and what is measured there is without.
  unsigned block = blockIdx.x;
#if __CUDA_ARCH__ != 900
  asm volatile("" : "+r"(block));
#endif
  const Part<config> part(block);
  const int first = place.chunk * config.filters;  // for the block's filters
  float* to = config.staged
                  ? staged + (place.unit * config.block_filters() + first) * kPlane + place.row * kRow
                  : y + part.plane(place.unit, first) + (part.first_row() + place.row) * kRow;
  to += place.column;
#pragma unroll
  for (int i = 0; i < config.filters; ++i)
#pragma unroll
    for (int row = 0; row < config.rows; ++row) {
      float(&four)[4] = sums[i][row];
#pragma unroll
      for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
        four[column] = activate<config.conv>(four[column]);
      float* there = to + i * kPlane + row * kRow;
      const bool exists = config.staged || (part.has_filter(first + i) && part.has_row(place.row + row));
      if constexpr (kVectors && config.staged)
        ptx::st_shared_v4(ptx::shared_address(there), four);
      else if constexpr (kVectors)
        ptx::st_global_v4_if(there, four, exists);
      else if (exists)
#pragma unroll
        for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
          if (place.column + column < a.q) there[column] = four[column];
    }
}

}  // namespace convtune::direct_fma_sm80
