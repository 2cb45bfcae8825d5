// How direct_stem_half.cuh stores a warp's sums: finished and rounded, gathered in shared memory, and from
// there in pieces of 16 bytes where the output allows it.
#pragma once

#include "cuda/algorithms/direct_stem_half/load.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_stem_half {

// Where a tile's output is in its plane of y, or that it has none.
template <DirectStemHalf config>
struct Output {
  int at;
  bool exists;

  __device__ Output(const Tile<config>& tile, int output) {
    at = tile.p * config.conv.q + output;
    exists = output < config.outputs() && at < config.conv.p * config.conv.q;
  }
  __device__ long long offset(const Tile<config>& tile, int filter) const {
    constexpr ConvExtents a = config.conv;
    constexpr int kPlane = a.p * a.q;
    return a.nhwc ? (static_cast<long long>(tile.image) * kPlane + at) * a.k + filter
                  : (static_cast<long long>(tile.image) * a.k + filter) * kPlane + at;
  }
};

// Sums of outputs first_output to first_output + 15 of the tile and of filters first_filter on.
template <DirectStemHalf config>
__device__ void store(const float (&sums)[config.filters / 2], const void* __restrict__ residual,
                      unsigned biases, void* __restrict__ y, const Tile<config>& tile, int first_output,
                      int first_filter, unsigned staging) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPitch = config.staging_pitch(), kFilters = config.filters;
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, thread = lane % 4;
  // Rows of the products beside each other in shared memory, whatever their outputs are: so no two lanes
  // write to one bank. Where channels come first, outputs are.
  const int rows[] = {config.output_of_row(group), config.output_of_row(group + 8)};
  const Output<config> outputs[] = {{tile, first_output + rows[0]}, {tile, first_output + rows[1]}};
#pragma unroll
  for (int j = 0; j < kFilters / 8; ++j) {
    // From shared memory each time: in registers they would be kept while others multiply.
    float bias[2];
    ptx::ld_shared_v2(bias[0], bias[1], biases + 4 * (8 * j + 2 * thread));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float finished[2];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int filter = first_filter + 8 * j + 2 * thread + b;
        float more = 0;
        if constexpr (a.residual)
          if ((a.k % kFilters == 0 || filter < a.k) && outputs[i].exists)
            more = load_element<a.y_type>(residual, outputs[i].offset(tile, filter));
        finished[b] = finish<a>(sums[4 * j + 2 * i + b], bias[b], more);
      }
      const unsigned two = pack_halves<a.y_type>(finished[0], finished[1]);
      if constexpr (a.nhwc) {
        ptx::st_shared(staging + 2 * ((group + 8 * i) * kPitch + 8 * j + 2 * thread), two);
      } else {
        ptx::st_shared_u16(staging + 2 * ((8 * j + 2 * thread) * kPitch + rows[i]), two);
        ptx::st_shared_u16(staging + 2 * ((8 * j + 2 * thread + 1) * kPitch + rows[i]), two >> 16);
      }
    }
  }
  __syncwarp();
  auto* const to = static_cast<unsigned short*>(y);
  if constexpr (a.nhwc && config.aligned && a.k % 8 == 0) {
    constexpr int kPieces = kFilters / 8;
#pragma unroll 2
    for (int i = lane; i < 16 * kPieces; i += 32) {
      const int row = i / kPieces, filter = first_filter + i % kPieces * 8;
      const Output<config> output(tile, first_output + config.output_of_row(row));
      unsigned piece[4];
      ptx::ld_shared_v4(piece, staging + 2 * (row * kPitch + i % kPieces * 8));
      ptx::st_global_v4_if(to + output.offset(tile, filter), piece, output.exists && filter < a.k);
    }
  } else if constexpr (!a.nhwc && config.aligned && a.p * a.q % 8 == 0 && config.outputs() % 8 == 0) {
#pragma unroll 2
    for (int i = lane; i < 2 * kFilters; i += 32) {
      const int row = i % 2 * 8, channel = i / 2;
      const Output<config> output(tile, first_output + row);
      unsigned piece[4];
      ptx::ld_shared_v4(piece, staging + 2 * (channel * kPitch + row));
      ptx::st_global_v4_if(to + output.offset(tile, first_filter + channel), piece,
                           output.exists && first_filter + channel < a.k);
    }
  } else {
#pragma unroll 2
    for (int i = lane; i < 16 * kFilters; i += 32) {
      const int row = a.nhwc ? i / kFilters : i % 16, channel = a.nhwc ? i % kFilters : i / 16;
      const Output<config> output(tile, first_output + (a.nhwc ? config.output_of_row(row) : row));
      const unsigned bits =
          ptx::ld_shared_u16(staging + 2 * (a.nhwc ? row * kPitch + channel : channel * kPitch + row));
      if (output.exists && first_filter + channel < a.k)
        to[output.offset(tile, first_filter + channel)] = static_cast<unsigned short>(bits);
    }
  }
  __syncwarp();  // nobody writes what another still reads
}

}  // namespace convtune::direct_stem_half
