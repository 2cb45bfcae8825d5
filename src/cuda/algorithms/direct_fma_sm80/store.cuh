// Finds, for direct_fma_sm80.cuh, where a thread's strip is in its block, and how its sums come into y.
#pragma once

#include "cuda/algorithms/direct_fma_sm80/load.cuh"
#include "cuda/algorithms/direct_fma_sm80/read.cuh"
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

// An output in memory: a float, or the bits of a half.
template <ElementType kType>
struct Stored {
  using Type = unsigned short;
};
template <>
struct Stored<ElementType::f32> {
  using Type = float;
};
template <DirectFmaSm80 config>
using Output = typename Stored<config.conv.y_type>::Type;

// Stores outputs beside each other where they are wanted: several at a multiple of all their bytes, or one.
template <DirectFmaSm80 config, int kWidth>
__device__ __forceinline__ void store_outputs(Output<config>* to, const float (&values)[kWidth],
                                              bool wanted) {
  constexpr ElementType kType = config.conv.y_type;
  if constexpr (kWidth == 1) {
    if (wanted) store_element<kType>(to, 0, values[0]);
  } else if constexpr (kType == ElementType::f32) {
    ptx::st_global_v4_if(to, values, wanted);
  } else {
    unsigned words[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) words[i] = pack_halves<kType>(values[2 * i], values[2 * i + 1]);
    if constexpr (kWidth == 8)
      ptx::st_global_v4_if(to, words, wanted);
    else if (wanted)
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  }
}
// As above, from shared memory.
template <DirectFmaSm80 config, int kWidth>
__device__ __forceinline__ void copy_outputs(Output<config>* to, const float* from, bool wanted) {
  float values[kWidth];
  read<0, kWidth>(values, from);
  store_outputs<config, kWidth>(to, values, wanted);
}

// Staged outputs to y: what is contiguous there is written in one piece, 16 bytes at a time where that can
// be.
template <DirectFmaSm80 config>
__device__ __forceinline__ void store_staged(const float* staged, void* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPlane = config.band_rows() * a.q;  // in shared memory
  constexpr bool kWhole = config.band_rows() == a.p && config.block_filters() == a.group_filters();
  constexpr int kAll = config.units * config.block_filters() * kPlane, kVector = 16 / size_of(a.y_type);
  Output<config>* const outputs = static_cast<Output<config>*>(y);
  if constexpr (config.aligned && kWhole && kAll % kVector == 0) {
    if (part.has_unit(config.units - 1)) {
      Output<config>* to = outputs + part.plane(0, 0);
#pragma unroll 4
      for (int i = threadIdx.x * kVector; i < kAll; i += config.threads() * kVector)
        copy_outputs<config, kVector>(to + i, staged + i, true);
      return;
    }
  }
  constexpr long long kPlaneOfY = static_cast<long long>(a.p) * a.q;
  constexpr int kWidth = !config.aligned                                     ? 1
                         : kPlaneOfY % kVector == 0 && kPlane % kVector == 0 ? kVector
                         : kPlaneOfY % 4 == 0 && kPlane % 4 == 0             ? 4
                                                                             : 1;
  constexpr int kPieces = kPlane / kWidth;
  const int rows = config.bands() * config.band_rows() == a.p || part.band() + 1 < config.bands()
                       ? config.band_rows()
                       : a.p - part.first_row();
#pragma unroll 4
  for (int i = threadIdx.x; i < kAll / kWidth; i += config.threads()) {
    const int plane = i / kPieces, at = i % kPieces * kWidth;
    const int unit = plane / config.block_filters(), filter = plane % config.block_filters();
    if (!part.has_unit(unit) || !part.has_filter(filter) || at >= rows * a.q) continue;
    Output<config>* to = outputs + part.plane(unit, filter) + part.first_row() * a.q + at;
    const float* from = staged + plane * kPlane + at;
    if (kWidth == 1 || at + kWidth <= rows * a.q) {
      copy_outputs<config, kWidth>(to, from, true);
      continue;
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      if (at + j < rows * a.q) store_element<a.y_type>(to, j, from[j]);
  }
}

// Whatever is staged has a place there in any case. Where rows are no whole vectors 4 stores with predicates
// in a statement do not work: ptxas tears them apart, and partial sectors cost up to 64 % then.
template <DirectFmaSm80 config>
__device__ __forceinline__ void store_strip(Sums<config>& sums, const float (&bias)[config.filters],
                                            const Place<config>& place, const void* __restrict__ residual,
                                            float* staged, void* __restrict__ y) {
  constexpr ConvExtents a = config.conv;
  constexpr int kRow = a.q;
  constexpr long long kPlaneOfY = static_cast<long long>(a.p) * a.q;
  constexpr bool kWhole = a.q % 4 == 0;  // rows are whole vectors
  constexpr SumsBegin kBegin = a.eager ? SumsBegin::at_zero : SumsBegin::at_bias;
  // The block's number again: kept all the time it is spilled in one config of five hundred. On 9.0 none is
  // seen to be, and what is measured there is without.
  unsigned block = blockIdx.x;
#if __CUDA_ARCH__ != 900
  asm volatile("" : "+r"(block));
#endif
  const Part<config> part(block);
  const int first = place.chunk * config.filters;  // for the block's filters
  constexpr int kStagedPlane = config.band_rows() * a.q;
  float* const there =
      staged + (place.unit * config.block_filters() + first) * kStagedPlane + place.row * kRow + place.column;
  const long long at = part.plane(place.unit, first) + (part.first_row() + place.row) * kRow +
                       part.first_column() + place.column;
  Output<config>* const to = static_cast<Output<config>*>(y) + at;
#pragma unroll
  for (int i = 0; i < config.filters; ++i)
#pragma unroll
    for (int row = 0; row < config.rows; ++row) {
      float(&four)[4] = sums[i][row];
      const bool exists = part.has_filter(first + i) && part.has_row(place.row + row);
#pragma unroll
      for (int column = 0; column < DirectFmaSm80::kColumns; ++column) {
        float added = 0;
        if constexpr (a.residual)
          if (exists && part.has_column(place.column + column))
            added = load_element<a.y_type>(residual, at + i * kPlaneOfY + row * kRow + column);
        four[column] = finish<config.conv, kBegin>(four[column], bias[i], added);
      }
      if constexpr (config.staged && kWhole) {
        ptx::st_shared_v4(ptx::shared_address(there + i * kStagedPlane + row * kRow), four);
      } else if constexpr (config.staged) {
#pragma unroll
        for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
          if (place.column + column < a.q) there[i * kStagedPlane + row * kRow + column] = four[column];
      } else if constexpr (kWhole && config.aligned) {
        store_outputs<config, 4>(to + i * kPlaneOfY + row * kRow, four,
                                 exists && part.has_column(place.column));
      } else if (exists) {
#pragma unroll
        for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
          if (part.has_column(place.column + column))
            store_element<a.y_type>(to, i * kPlaneOfY + row * kRow + column, four[column]);
      }
    }
}

}  // namespace convtune::direct_fma_sm80
