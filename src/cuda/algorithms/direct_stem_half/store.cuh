// How direct_stem_half.cuh stores a warp's sums where channels come last: finished and rounded, gathered in
// shared memory, and from there in pieces of 16 bytes where the output allows it.
#pragma once

#include "cuda/algorithms/direct_stem_half/output.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/ptx/sm90.cuh"
#endif

namespace convtune::direct_stem_half {

// Eights of filters of a warp's 16 outputs, moved by lanes 16 bytes at a time. f(address in the staging,
// offset in y, whether it exists) for this lane's.
template <DirectStemHalf config, class F>
__device__ __forceinline__ void for_pieces(const Tile<config>& tile, int first_output, int first_filter,
                                           unsigned staging, const F& f) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPitch = 2 * config.staging_pitch(), kOfOutput = config.filters / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Output<config> first(tile, first_output);
  const long long offset = first.offset(tile, first_filter);
  // Outputs that follow each other do so in y, too. Where a tile has 16 times some, a warp has all of its or
  // none.
  constexpr bool kWhole = config.outputs() % 16 == 0 && a.p % config.rows == 0;
  const int count = lesser(config.outputs() - first_output, a.p * a.q - first.at);
  const auto exists = [&](int output, int channel) {
    return (kWhole ? first_output < config.outputs() : output < count) &&
           (a.k % config.filters == 0 || first_filter + channel < a.k);
  };
  // Each so many pieces a lane has the same eight again, of outputs a constant apart, as are their addresses.
  constexpr int kPeriod = kOfOutput / gcd(kOfOutput, 32), kApart = 32 * kPeriod / kOfOutput;
  for_constants<0, kPeriod>([&](auto part) {
    const int piece = part.value * 32 + lane, output = piece / kOfOutput, channel = piece % kOfOutput * 8;
    const unsigned at = staging + config.row_of_output(output) * kPitch + 2 * channel;
    const long long from = offset + output * a.k + channel;
    for_constants<0, 16 / kApart>([&](auto step) {
      constexpr int kOutput = step.value * kApart;
      f(at + config.row_of_output(kOutput) * kPitch, from + kOutput * a.k, exists(output + kOutput, channel));
    });
  });
}

// The residual on its way to where its outputs will be staged, while others multiply. Outputs that are
// dropped have what was there.
template <DirectStemHalf config>
__device__ __forceinline__ void load_residual(const void* __restrict__ residual, const Tile<config>& tile,
                                              int first_output, int first_filter, unsigned staging) {
  if constexpr (config.conv.residual && kPieces<config>) {
    for_pieces<config>(tile, first_output, first_filter, staging,
                       [&](unsigned to, long long offset, bool exists) {
                         if (exists)
                           ptx::cp_async_16(to, static_cast<const unsigned short*>(residual) + offset, 16);
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
  const Output<config> outputs[] = {{tile, first_output + config.output_of_row(group)},
                                    {tile, first_output + config.output_of_row(group + 8)}};
  // The residual of two filters of an output, where it does not wait in shared memory.
  const auto load_more = [&](int i, int column) {
    unsigned more[2] = {};
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int filter = first_filter + column + b;
      if ((a.k % kFilters == 0 || filter < a.k) && outputs[i].exists)
        more[b] = static_cast<const unsigned short*>(residual)[outputs[i].offset(tile, filter)];
    }
    return __byte_perm(more[0], more[1], 0x5410);
  };
  if constexpr (a.residual && kPieces<config>) {
    ptx::cp_async_wait_group<0>();
    __syncwarp();
  }
  // 16 filters are four matrices, of rows 0 and 8 on and eights of filters: lanes give the addresses of their
  // rows. Two such at once: what they read is under way together, and one's special functions beside
  // another's.
  const unsigned matrices = staging + 2 * ((lane / 8 % 2 * 8 + lane % 8) * kPitch + lane / 16 * 8);
  constexpr int kBlocks = kFilters / 16, kAtOnce = kBlocks % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int begin = 0; begin < kBlocks; begin += kAtOnce) {
    unsigned words[kAtOnce][4] = {};
    const auto each = [&](const auto& f) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          f(words[j][i], i % 2, (begin + j) * 16 + i / 2 * 8 + 2 * thread,
            sums + 8 * (begin + j) + i / 2 * 4 + i % 2 * 2);
    };
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if constexpr (a.residual && kPieces<config>) ptx::ldmatrix_x4(words[j], matrices + (begin + j) * 32);
    if constexpr (a.residual && !kPieces<config>)
      each([&](unsigned& word, int i, int column, const float*) { word = load_more(i, column); });
    each([&](unsigned& word, int, int column, const float* two) {
      float bias[2] = {};
      if constexpr (kBegin<config> == SumsBegin::at_zero)
        ptx::ld_shared_v2(bias[0], bias[1], biases + 4 * column);
      word = finish_halves<a, kBegin<config>>(two[0], bias[0], two[1], bias[1], word);
    });
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) ptx::stmatrix_x4(matrices + (begin + j) * 32, words[j]);
#else
    each([&](unsigned word, int i, int column, const float*) {
      ptx::st_shared(staging + 2 * ((group + 8 * i) * kPitch + column), word);
    });
#endif
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
