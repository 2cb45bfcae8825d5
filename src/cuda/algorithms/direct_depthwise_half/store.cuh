// How direct_depthwise_half.cuh stores a tile: from shared memory, or computed again where a sum is NaN.
#pragma once

#include "cuda/algorithms/direct_depthwise_half/load.cuh"
#include "cuda/tile/exact.cuh"

namespace convtune::direct_depthwise_half {

// Outputs of a tile from shared memory, eight channels at a time.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void store_tile(unsigned short* __restrict__ y, const Part<config>& part,
                                           unsigned from) {
  constexpr ConvExtents a = config.conv;
  constexpr DirectDepthwiseHalf::Outputs kFrom = Planes<config>::kOutputs;
  constexpr int kPieces = config.tile_columns() * config.octets, kAll = config.images * config.tile_rows();
  unsigned short* const to = y + static_cast<long long>(part.image) * (a.p * a.q * a.c);
  for_pieces<config, kPieces>([&](int first_row, int piece) {
    const int octet = piece % config.octets, column = config.stored_column(piece / config.octets);
    const int q = part.q() + column, channel = part.first_channel() + 8 * octet;
    const bool exists =
        (a.q % config.tile_columns() == 0 || q < a.q) && (a.c % config.channels() == 0 || channel < a.c);
    const unsigned pairs = from + octet * kFrom.octet + kFrom.offset(0, 0, column);
    unsigned short* const pixels = to + (part.p() * a.q + q) * a.c + channel;
#pragma unroll 4
    for (int row = first_row; row < kAll; row += config.rows_abreast(kPieces)) {
      const int image = config.images == 1 ? 0 : row / config.tile_rows();
      const int of_image = row - image * config.tile_rows();
      const bool here =
          exists && part.has_image(image) && (a.p % config.tile_rows() == 0 || part.p() + of_image < a.p);
      const unsigned there = pairs + image * kFrom.image + of_image * kFrom.row;
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = ptx::ld_shared(there + i * kFrom.pair);
      unsigned short* const first = pixels + (image * a.p + of_image) * (a.q * a.c);
      if constexpr (config.aligned) {
        ptx::st_global_v4_if(first, words, here);
      } else if (here) {
#pragma unroll
        for (int i = 0; i < 8; ++i) first[i] = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      }
    }
  });
}

// All outputs of the block, slowly: where a sum is NaN.
template <DirectDepthwiseHalf config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.tile_pixels() * config.channels(); i += config.threads()) {
    const int channel = part.first_channel() + i % config.channels(), pixel = i / config.channels();
    const int row = pixel / config.tile_columns(), image = part.image + row / config.tile_rows();
    const int p = part.p() + row % config.tile_rows(), q = part.q() + pixel % config.tile_columns();
    if (image >= a.n || p >= a.p || q >= a.q || channel >= a.c) continue;
    store_exact_output<config>(x, packed, residual, y, image, channel, p, q);
  }
}

}  // namespace convtune::direct_depthwise_half
