// Device code for weights that are read as they lie (tile/lying.h): boxes of them, and outputs that must be
// computed again. Nobody has looked at such weights before: an infinity among them makes NaN of padding's
// zeros, and so of a sum.
#pragma once

#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/multicast.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/lying.h"

namespace convtune {

// An operand of such weights: rows of 64 filters, one for each k, blocks of 64 `step` apart, in 16 bytes. The
// next 16 of k are kLyingSixteen further on.
inline constexpr int kLyingSixteen = 2048 / 16;
__device__ constexpr unsigned long long lying_descriptor(unsigned address, unsigned step) {
  return (address & 0x3fff) | static_cast<unsigned long long>(step & 0x3fff) << 16 | 1024ull / 16 << 32 |
         1ull << 62;
}

// The place in a cluster of blocks that bring weights to each other; 0 where they only share sums.
template <auto config>
__device__ __forceinline__ int bringing(int rank) {
  return config.cluster > 1 ? rank : 0;
}

// Brings a step's weights of kBlocks times 64 filters, from `filter` of `group` on: of so many k's from
// `channel` on, of which each block of a cluster brings its part to all.
template <auto config, int kBlocks>
__device__ __forceinline__ void bring_lying_weights(const ptx::TensorMap* map, int group, int filter, int tap,
                                                    int channel, int rank, unsigned to, unsigned full,
                                                    bool mine) {
  constexpr ConvExtents a = config.conv;
  constexpr int kRows = config.channels / config.cluster, kResults = a.group_results();
  const int k = group * a.group_channels() + channel + bringing<config>(rank) * kRows;
  for_constants<0, kBlocks>([&](auto block) {
    const int at = filter + block.value * LyingWeights::kBlock;
    const int residue = a.lies.residues() == 1 ? 0 : at / kResults;
    const unsigned there = to + (block.value * config.channels + bringing<config>(rank) * kRows) * 128;
    const int of_layer = config.lie.tap_of(a, residue, tap);
    if constexpr (config.cluster > 1)
      ptx::load_box_to_all_if(there, map, at - residue * kResults, of_layer, k, 0, 0, full,
                              (1u << config.cluster) - 1, mine);
    else
      ptx::load_box_if(there, map, at - residue * kResults, of_layer, k, 0, 0, full, mine);
  });
}

// Brings a step's weights of a layer: rows of a tap's channels, from `channel` on, of kFilters filters.
template <auto config, int kFilters>
__device__ __forceinline__ void bring_lying_rows(const ptx::TensorMap* map, int filter, int tap, int channel,
                                                 int rank, unsigned to, unsigned full, bool mine) {
  constexpr int kPart = kFilters / config.cluster, kBox = LyingWeights::box_filters(kPart);
  for_constants<0, kPart / kBox>([&](auto box) {
    const int row = bringing<config>(rank) * kPart + box.value * kBox;
    if constexpr (config.cluster > 1)
      ptx::load_box_to_all_if(to + row * config.row_bytes(), map, channel, tap, filter + row, 0, 0, full,
                              (1u << config.cluster) - 1, mine);
    else
      ptx::load_box_if(to + row * config.row_bytes(), map, channel, tap, filter + row, 0, 0, full, mine);
  });
}

// A warp's knowledge of the weights: it looks at them when a sum is NaN, once.
template <auto config>
struct LyingDoubt {
  bool looked = false, finite = true;

  // Tells whether outputs must be computed again, of which some are NaN: asked by all lanes.
  __device__ bool holds(const void* __restrict__ w) {
    if (!looked) {
      looked = true;
      finite = all_finite(static_cast<const uint4*>(w));
    }
    return !finite;
  }

 private:
  __device__ static __noinline__ bool all_finite(const uint4* __restrict__ w) {
    constexpr long long kUnits = config.packed().prepared / 4;
    constexpr ElementType kType = config.conv.x_type;
    bool all = true;
#pragma unroll 4
    for (long long i = threadIdx.x % 32; i < kUnits; i += 32) {
      const uint4 words = w[i];
      for (const unsigned word : {words.x, words.y, words.z, words.w})
        all &= is_finite(__float_as_uint(low_half<kType>(word & 0xffff))) &
               is_finite(__float_as_uint(low_half<kType>(word >> 16)));
    }
    return __all_sync(0xffffffff, all);
  }
};

template <auto config>
struct LyingTaps {
  const void* w;
  int filter;

  __device__ static bool lacks(int filter, int tap) {
    constexpr ConvExtents a = config.conv;
    const int residue = filter % a.group_filters() / a.group_results();
    return (tap / a.s % a.r == 0 && a.lies.lacks_row(residue)) ||
           (tap % a.s == 0 && a.lies.lacks_column(residue));
  }
  __device__ __forceinline__ float operator[](int tap) const {
    if (config.conv.lies.uneven() && lacks(filter, tap)) return 0;
    const long long weight = static_cast<long long>(filter) * config.conv.taps() + tap;
    return load_element<config.conv.x_type>(w, config.lie.half_of(config.conv, weight));
  }
};

// As exact_output(), of weights that lie.
template <auto config>
__device__ float exact_lying_output(const void* __restrict__ x, const void* __restrict__ w, int image,
                                    int filter, int p, int q, int z) {
  constexpr ConvExtents a = config.conv;
  constexpr bool kUneven = a.lies.uneven();
  const int first_channel = filter / a.group_filters() * a.group_channels();
  const float sum = exact_sum(
      a, LyingTaps<config>{w, filter}, p * a.stride_h - a.pad_top, q * a.stride_w - a.pad_left,
      [&](int channel, int frame, int row, int column) {
        if constexpr (kUneven) {  // the weight is 0, and x may be infinite
          const int residue = filter % a.group_filters() / a.group_results();
          if ((row == p - a.pad_top && a.lies.lacks_row(residue)) ||
              (column == q - a.pad_left && a.lies.lacks_column(residue)))
            return 0.0f;
        }
        return load_element<a.x_type>(x, a.input_offset(image, first_channel + channel, frame, row, column));
      },
      z * a.stride_d - a.pad_front);
  return finish<config.conv>(sum, 0, 0);
}

}  // namespace convtune
