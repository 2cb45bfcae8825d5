// See weight_gradient_maps.h.
#include "cuda/algorithms/weight_gradient_half_sm90/weight_gradient_maps.h"

#include <array>

namespace convtune::cuda {
namespace {

// Rows of frames, with a window.
TensorMapLayout rows_of(std::array<int, 5> extents, int channels, int pitch, int rows, ElementType type) {
  TensorMapLayout layout{.extents = {},
                         .strides = {},
                         .box = {static_cast<std::uint32_t>(channels), static_cast<std::uint32_t>(pitch),
                                 static_cast<std::uint32_t>(rows), 1, 1},
                         .swizzle = channels == 32 ? Swizzle::bytes_64 : Swizzle::bytes_128,
                         .type = type};
  std::uint64_t step = 2;
  for (const int extent : extents) {
    layout.extents.push_back(static_cast<std::uint64_t>(extent));
    if (step > 2) layout.strides.push_back(step);
    step *= static_cast<std::uint64_t>(extent);
  }
  return layout;
}

}  // namespace

TensorMaps weight_gradient_maps(const WeightGradientHalfSm90& kernel) {
  const auto wide = [](int value) { return static_cast<std::uint64_t>(value); };
  const ConvExtents& a = kernel.conv;
  constexpr std::string_view kMaps = "convtune::weight_gradient_half_sm90::Maps";
  if (kernel.planes) {
    const auto planes_of = [&](int channels, int frames, int of_frame, ElementType type) {
      // Images are copied without a map, and this one is not read. Channels come in eights, planes may be
      // less.
      if (!kernel.has_whole_planes()) channels = channels / 8 * of_frame, of_frame = 8;
      const std::uint64_t plane = 2 * wide(of_frame), channel = plane * wide(frames);
      const auto columns = static_cast<std::uint32_t>(kernel.kPiece * kernel.slice_pieces());
      return TensorMapLayout{
          .extents = {wide(of_frame), wide(channels), wide(frames), wide(a.n), 1},
          .strides = {channel, plane, channel * wide(channels), channel * wide(channels) * wide(a.n)},
          .box = {columns, kernel.kBlock, 1, 1, 1},
          .type = type};
    };
    return {kMaps,
            {{Operand::x, {planes_of(a.c, a.d, a.h * a.w, a.x_type)}},
             {Operand::dy, {planes_of(a.k, a.z, a.p * a.q, a.y_type)}}}};
  }
  const std::uint64_t pixel = 2 * wide(a.c), frame = pixel * wide(a.w) * wide(a.h);
  const auto pixels = static_cast<std::uint32_t>(kernel.pixels);
  if (kernel.window > 0) {
    return {kMaps,
            {{Operand::x,
              {rows_of({a.c, a.w, a.h, a.d, a.n}, kernel.block_channels(), kernel.pitch(),
                       kernel.window_rows(), a.x_type)}},
             {Operand::dy,
              {rows_of({a.k, a.q, a.p, a.z, a.n}, kernel.kBlock, kernel.pitch(), kernel.window, a.y_type)}}}};
  }
  TensorMapLayout x{.extents = {wide(a.c), wide(a.w), wide(a.h)},
                    .strides = {pixel, pixel * wide(a.w)},
                    .box = {kernel.kBlock, pixels},
                    .swizzle = Swizzle::bytes_128,
                    .type = a.x_type};
  if (kernel.pointwise()) {
    x.extents = {wide(a.c), wide(a.n) * wide(a.d) * wide(a.h) * wide(a.w)};
    x.strides = {pixel};
  } else {
    x.walk = ImageWalk{{-a.pad_left, -a.pad_top},
                       {kernel.corner_right(), kernel.corner_below()},
                       {static_cast<std::uint32_t>(a.stride_w), static_cast<std::uint32_t>(a.stride_h)}};
    if (a.has_depth()) {
      x.extents.push_back(wide(a.d)), x.strides.push_back(frame);
      x.walk->first_corner.push_back(-a.pad_front), x.walk->last_corner.push_back(kernel.corner_behind());
      x.walk->strides.push_back(static_cast<std::uint32_t>(a.stride_d));
    }
    x.extents.push_back(wide(a.n)), x.strides.push_back(frame * wide(a.d));
  }
  const TensorMapLayout dy{.extents = {wide(a.k), static_cast<std::uint64_t>(kernel.all_pixels())},
                           .strides = {2 * wide(a.k)},
                           .box = {kernel.kBlock, pixels},
                           .swizzle = Swizzle::bytes_128,
                           .type = a.y_type};
  return {kMaps, {{Operand::x, {x}}, {Operand::dy, {dy}}}};
}

}  // namespace convtune::cuda
