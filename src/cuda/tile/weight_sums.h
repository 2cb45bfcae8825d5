// Gradients of weights that blocks share: where their partial sums lie, for the kernels that leave them and
// for the host that plans these.
#pragma once

#include "cuda/tile/conv_extents.h"

namespace convtune {

// Most bytes of partial sums: a workspace that finds room beside a model's tensors. Where no blocks share a
// gradient there are as many as gradients, and no fewer would do.
constexpr long long kMostPartialBytes = 256LL << 20;
constexpr bool partial_sums_fit(long long words, bool shared) {
  return !shared || 4 * words <= kMostPartialBytes;
}

// A block that adds up (weight_sums.cuh) has so many fours of sums, each in as many shares as leave a thread
// few of `split` ranks to go through.
constexpr int kAddThreads = 256;
constexpr int added_fours(int split) {
  return split >= 128 ? 4 : 16;
}

// A rank's sums of depthwise weights, as floats: [tap, and behind them the bias][channel of all blocks].
struct DepthwiseSums {
  int channels = 1, all_channels = 4, taps = 1;
  bool bias = true;
  constexpr int words() const { return (taps + bias) * all_channels; }
  // Returns the weight whose gradient is a word, or -1; behind all weights: the bias of a channel.
  constexpr long long weight_of(int word) const {
    const int channel = word % all_channels, sum = word / all_channels;
    if (channel >= channels) return -1;
    return sum == taps ? 1LL * channels * taps + channel : 1LL * channel * taps + sum;
  }
};

}  // namespace convtune
