// How direct_stem_half.cuh stores a warp's sums where channels come last: finished and rounded, gathered in
// shared memory, and from there in pieces of 16 bytes where the output allows it.
#pragma once

#include "cuda/algorithms/direct_stem_half/output.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_stem_half {

// f(address in the staging, offset in y, whether it exists) for this lane's pieces of outputs first_output to
// first_output + 15: eight filters of an output.
template <DirectStemHalf config, class F>
__device__ __forceinline__ void for_pieces(const Tile<config>& tile, int first_output, int first_filter,
                                           unsigned staging, const F& f) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPitch = 2 * config.staging_pitch(), kOfOutput = config.filters / 8;
  const Output<config> first(tile, first_output);
  const long long offset = first.offset(tile, first_filter);
  // Outputs that follow each other do so in y, too.
  const int count = lesser(config.outputs() - first_output, a.p * a.q - first.at);
#pragma unroll 4
  for (unsigned i = threadIdx.x % 32; i < 2 * config.filters; i += 32) {
    const int output = i / kOfOutput, channel = i % kOfOutput * 8;
    f(staging + config.row_of_output(output) * kPitch + 2 * channel, offset + output * a.k + channel,
      output < count && (a.k % config.filters == 0 || first_filter + channel < a.k));
  }
}

// The residual on its way to where its outputs will be staged, while others multiply.
template <DirectStemHalf config>
__device__ __forceinline__ void load_residual(const void* __restrict__ residual, const Tile<config>& tile,
                                              int first_output, int first_filter, unsigned staging) {
  if constexpr (config.conv.residual && kPieces<config>) {
    for_pieces<config>(tile, first_output, first_filter, staging,
                       [&](unsigned to, long long offset, bool exists) {
                         const auto* const from = static_cast<const unsigned short*>(residual);
                         ptx::cp_async_16(to, from + (exists ? offset : 0), exists ? 16 : 0);
                       });
    ptx::cp_async_commit_group();
  }
}

// Sums of outputs first_output to first_output + 15 of the tile and of filters first_filter on.
template <DirectStemHalf config>
__device__ void store(const float (&sums)[config.filters / 2], const void* __restrict__ residual,
                      unsigned biases, void* __restrict__ y, const Tile<config>& tile, int first_output,
                      int first_filter, unsigned staging) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPitch = config.staging_pitch(), kFilters = config.filters;
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, thread = lane % 4;
  // Rows of the products beside each other in shared memory, whatever their outputs are: so no two lanes
  // write to one bank.
  const int rows[] = {config.output_of_row(group), config.output_of_row(group + 8)};
  const Output<config> outputs[] = {{tile, first_output + rows[0]}, {tile, first_output + rows[1]}};
  const auto staged = [&](int i, int column) {  // of row i and two filters
    return staging + 2 * ((group + 8 * i) * kPitch + column);
  };
  const auto load_more = [&](unsigned(&more)[2], int i, int column) {
    more[0] = more[1] = 0;
    if constexpr (config.conv.residual && kPieces<config>) {
      more[0] = ptx::ld_shared(staged(i, column));
      more[1] = more[0] >> 16;
    } else if constexpr (config.conv.residual) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int filter = first_filter + column + b;
        if ((a.k % kFilters == 0 || filter < a.k) && outputs[i].exists)
          more[b] = static_cast<const unsigned short*>(residual)[outputs[i].offset(tile, filter)];
      }
    }
  };
  if constexpr (a.residual && kPieces<config>) {
    ptx::cp_async_wait_group<0>();
    __syncwarp();
  }
  // Several eights of filters at once: what they read is under way together, and one's special functions
  // beside another's. Biases from shared memory each time: in registers they would be kept while others
  // multiply.
  constexpr int kAtOnce = kFilters % 32 == 0 ? 4 : kFilters % 16 == 0 ? 2 : 1;
#pragma unroll
  for (int begin = 0; begin < kFilters / 8; begin += kAtOnce) {
    float bias[kAtOnce][2];
    unsigned more[kAtOnce][2][2];  // halves of the residual
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int column = 8 * (begin + j) + 2 * thread;
      ptx::ld_shared_v2(bias[j][0], bias[j][1], biases + 4 * column);
#pragma unroll
      for (int i = 0; i < 2; ++i) load_more(more[j][i], i, column);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* const two = sums + 4 * (begin + j) + 2 * i;
        more[j][i][0] = finish_halves<a>(two[0], bias[j][0], two[1], bias[j][1],
                                         __byte_perm(more[j][i][0], more[j][i][1], 0x5410));
      }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ptx::st_shared(staged(i, 8 * (begin + j) + 2 * thread), more[j][i][0]);
      }
  }
  __syncwarp();
  auto* const to = static_cast<unsigned short*>(y);
  if constexpr (kPieces<config>) {
    for_pieces<config>(tile, first_output, first_filter, staging,
                       [&](unsigned from, long long offset, bool exists) {
                         unsigned piece[4];
                         ptx::ld_shared_v4(piece, from);
                         ptx::st_global_v4_if(to + offset, piece, exists);
                       });
  } else {
#pragma unroll 2
    for (int i = lane; i < 16 * kFilters; i += 32) {
      const int row = i / kFilters, channel = i % kFilters;
      const Output<config> output(tile, first_output + config.output_of_row(row));
      const unsigned bits = ptx::ld_shared_u16(staging + 2 * (row * kPitch + channel));
      if (output.exists && first_filter + channel < a.k)
        to[output.offset(tile, first_filter + channel)] = static_cast<unsigned short>(bits);
    }
  }
  __syncwarp();  // nobody writes what another still reads
}

}  // namespace convtune::direct_stem_half
