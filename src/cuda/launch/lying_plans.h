// Plans whose kernel reads weights as they lie, channels last (tile/lying.h): layers and gradients of x
// without epilogue, where a config says `lying`. What pack() makes of a filter is the filter, channels last,
// and whoever has it so packs nothing: its memory is the packed weights.
#pragma once

#include "cuda/launch/extents.h"
#include "cuda/launch/launch_plan.h"
#include "cuda/tile/lying.h"

namespace convtune::cuda {

// The order of packed weights that are the filter as it lies, channels last.
inline constexpr std::string_view kLyingOrder = "krsc";

bool is_lying(const Config& config);
// A kernel that reads lying weights where it can, and so has `lying` among its fields.
template <class Kernel>
constexpr Kernel lying_if_able() {
  Kernel kernel;
  if constexpr (requires { kernel.lying; }) kernel.lying = 1;
  return kernel;
}
// How the layer's filter serves a part of a gradient, or the layer itself; packed weights where these have an
// epilogue, or the filter lies otherwise.
LyingWeights lying_of(const Computed& part);
// w as [filter][tap][channel]. A gradient's box is 64 channels of a tap of `channels` filters, a layer's as
// many channels of the `depth` that a tap has of `filters`; each block of a cluster brings its part.
TensorMapGroup lying_map(const ConvExtents& part, const LyingWeights& weights, int depth, int channels,
                         int filters, int cluster);
// Has pack() put the filter channels last, and nothing else read what only packed weights have.
void lie(LaunchPlan& plan, const Computed& part);

// The time of packing in each call, by the model, where weights may change in each: in layers and parts of
// gradients of x in half precision, without a bias, a residual or an activation: else these are of a model
// that nobody trains.
double packing_us(const Computed& part);
double packing_us(const std::vector<Computed>& parts, const Config& config);  // 0 of one that is lying

}  // namespace convtune::cuda
