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

// Whether outputs, and a residual, come and go in pieces of 16 bytes.
template <DirectStemHalf config>
constexpr bool kPieces = config.aligned && (config.conv.nhwc ? config.conv.k % 8 == 0
                                                             : config.conv.p * config.conv.q % 8 == 0 &&
                                                                   config.outputs() % 8 == 0);

// f(address in the staging, offset in y, whether it exists) for this lane's pieces of outputs first_output to
// first_output + 15: eight filters of an output, or, where channels come first, eight outputs of a filter.
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
    const int output = a.nhwc ? i / kOfOutput : i % 2 * 8, channel = a.nhwc ? i % kOfOutput * 8 : i / 2;
    const int row = a.nhwc ? config.row_of_output(output) : output;
    f(staging + (a.nhwc ? row * kPitch + 2 * channel : channel * kPitch + 2 * row),
      offset + (a.nhwc ? output * a.k + channel : channel * (a.p * a.q) + output),
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
  // write to one bank. Where channels come first, outputs are.
  const int rows[] = {config.output_of_row(group), config.output_of_row(group + 8)};
  const Output<config> outputs[] = {{tile, first_output + rows[0]}, {tile, first_output + rows[1]}};
  const auto staged = [&](int i, int column) {  // of row i and two filters
    return a.nhwc ? staging + 2 * ((group + 8 * i) * kPitch + column)
                  : staging + 2 * (column * kPitch + rows[i]);
  };
  const auto load_more = [&](unsigned(&more)[2], int i, int column) {
    more[0] = more[1] = 0;
    if constexpr (config.conv.residual && kPieces<config> && config.conv.nhwc) {
      more[0] = ptx::ld_shared(staged(i, column));
      more[1] = more[0] >> 16;
    } else if constexpr (config.conv.residual) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int filter = first_filter + column + b;
        if constexpr (kPieces<config>)
          more[b] = ptx::ld_shared_u16(staged(i, column) + 2 * b * kPitch);
        else if ((a.k % kFilters == 0 || filter < a.k) && outputs[i].exists)
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
        float finished[2];
#pragma unroll
        for (int b = 0; b < 2; ++b)
          finished[b] =
              finish<a>(sums[4 * (begin + j) + 2 * i + b], bias[j][b], low_half<a.y_type>(more[j][i][b]));
        more[j][i][0] = pack_halves<a.y_type>(finished[0], finished[1]);
      }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned at = staged(i, 8 * (begin + j) + 2 * thread), two = more[j][i][0];
        if constexpr (a.nhwc) {
          ptx::st_shared(at, two);
        } else {
          ptx::st_shared_u16(at, two);
          ptx::st_shared_u16(at + 2 * kPitch, two >> 16);
        }
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
