// Tells where the outputs of direct_stem_half.cuh lie in y.
#pragma once

#include "cuda/algorithms/direct_stem_half/load.cuh"
#include "cuda/tile/epilogue.cuh"

namespace convtune::direct_stem_half {

// Locates a tile's output in its plane of y, or says that it has none.
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
    return a.nhwc ? (static_cast<long long>(tile.frame) * kPlane + at) * a.k + filter
                  : ((static_cast<long long>(tile.frame / a.z) * a.k + filter) * a.z + tile.frame % a.z) *
                            kPlane +
                        at;
  }
};

// Tells whether outputs, and a residual, come and go in pieces of 16 bytes.
template <DirectStemHalf config>
constexpr bool kPieces = config.aligned && (config.conv.nhwc ? config.conv.k % 8 == 0
                                                             : config.conv.p * config.conv.q % 8 == 0 &&
                                                                   config.outputs() % 8 == 0);

// Sums begin at the biases: that takes a load each, behind the products an addition too.
template <DirectStemHalf config>
constexpr SumsBegin kBegin = config.conv.eager ? SumsBegin::at_zero : SumsBegin::at_bias;

}  // namespace convtune::direct_stem_half
