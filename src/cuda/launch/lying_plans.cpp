// See lying_plans.h.
#include "cuda/launch/lying_plans.h"

#include <algorithm>

namespace convtune::cuda {
namespace {

// Taps of a gradient's layer: its channels are as far apart.
std::int64_t taps_of(const Gathering& weights) {
  return weights.steps[4];
}

// A layer itself, whose filter is taken as it comes.
bool is_layer(const Computed& part) {
  return part.direction == Direction::forward && part.weights.elements() == 0;
}
// Numbers that are packed in each call, where weights change; 0 of what is no layer and of no gradient.
std::int64_t changing(const Computed& part) {
  return is_layer(part) ? part.weight_elements() : part.weights.elements();
}

// Layers that are trained and gradients have no epilogue: what has one is a layer of a model, whose weights
// are packed once.
bool has_epilogue(const Computed& part) {
  return part.bias || part.residual || part.activation != Activation::none || part.snake != Snake::none;
}

}  // namespace

bool is_lying(const Config& config) {
  return std::ranges::any_of(config.values,
                             [](const auto& field) { return field.first == "lying" && field.second > 0; });
}

LyingWeights lying_of(const Computed& part) {
  const Gathering& a = part.weights;
  if (changing(part) == 0 || !part.weights_last || has_epilogue(part) || part.dtype.w != part.dtype.x)
    return {};
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  if (is_layer(part)) return {.taps = small(part.t * part.r * part.s), .rows = true};
  return {.taps = small(taps_of(a)),
          .first = small(a.begin),
          .step_d = small(a.steps[6]),
          .step_h = small(a.steps[7]),
          .step_w = small(a.steps[8]),
          .residue_d = small(a.steps[1]),
          .residue_h = small(a.steps[2]),
          .residue_w = small(a.steps[3])};
}

TensorMapGroup lying_map(const ConvExtents& part, const LyingWeights& weights, int depth, int channels,
                         int filters, int cluster) {
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  const auto narrow = [](int value) { return static_cast<std::uint32_t>(value); };
  if (weights.rows) {
    const std::uint64_t row = 2 * wide(depth), of_filter = 2 * wide(part.taps());
    return {Operand::packed,
            {{.extents = {wide(depth), wide(part.taps() / depth), wide(part.k), 1, 1},
              .strides = {row, of_filter, of_filter * wide(part.k), of_filter * wide(part.k)},
              .box = {narrow(channels), 1, narrow(LyingWeights::box_filters(filters / cluster)), 1, 1},
              .swizzle = channels == 64 ? Swizzle::bytes_128 : Swizzle::bytes_64,
              .type = part.x_type}}};
  }
  const std::uint64_t tap = 2 * wide(part.group_results()), filter = tap * wide(weights.taps);
  return {Operand::packed,
          {{.extents = {wide(part.group_results()), wide(weights.taps), wide(part.c), 1, 1},
            .strides = {tap, filter, filter * wide(part.c), filter * wide(part.c)},
            .box = {LyingWeights::kBlock, 1, narrow(channels / cluster), 1, 1},
            .swizzle = Swizzle::bytes_128,
            .type = part.x_type}}};
}

void lie(LaunchPlan& plan, const Computed& part) {
  const bool layer = is_layer(part);
  const std::int64_t taps = layer ? part.t * part.r * part.s : taps_of(part.weights);
  const std::int64_t channels = layer ? part.c / part.groups : part.weights.extents[4];
  plan.weights_lie = true;
  plan.pack = {Gathered{Operand::w,
                        Operand::packed,
                        {.extents = {layer ? part.k : part.c, 1, 1, 1, taps, 1, 1, 1, channels},
                         .steps = {channels * taps, 0, 0, 0, 1, 0, 0, 0, taps}},
                        size_of(part.dtype.w)}};
}

double packing_us(const Computed& part) {
  constexpr double kLaunch = 2.5, kBytesOfUs = 0.6e6;  // an H200's, behind a flush
  if (changing(part) == 0 || has_epilogue(part) || size_of(part.dtype.w) != 2) return 0;
  return kLaunch + 2 * static_cast<double>(changing(part)) / kBytesOfUs;
}

double packing_us(const std::vector<Computed>& parts, const Config& config) {
  double us = 0;
  if (!is_lying(config))
    for (const Computed& part : parts) us += packing_us(part);
  return us;
}

}  // namespace convtune::cuda
