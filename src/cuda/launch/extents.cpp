#include "cuda/launch/extents.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "problem/element.h"
#include "problem/epilogue.h"

namespace convtune::cuda {
namespace {

// Device code has an enumeration and a size_of() of its own, and takes a type that is neither f32 nor bf16
// for f16 (tile/element.cuh): a further type is answered there before this is changed.
static_assert(static_cast<int>(DType::f32) == static_cast<int>(ElementType::f32) &&
              static_cast<int>(DType::f16) == static_cast<int>(ElementType::f16) &&
              static_cast<int>(kLastDType) == static_cast<int>(ElementType::bf16));
static_assert(std::ranges::all_of(kElements, [](const ElementRow& row) {
  return size_of(static_cast<ElementType>(row.type)) == row.bytes;
}));

constexpr std::int64_t kMostExtent = 1 << 20;  // so that no product of three overflows 64 bits

}  // namespace

// Device code includes nothing of the host's, and so has an enum of its own, with the same values:
// tests/unit/problem/tensor_test.cpp.
ConvActivation activation_of(Activation activation) {
  return static_cast<ConvActivation>(activation);
}

ElementType element_type_of(DType type) {
  return static_cast<ElementType>(type);
}

Support fits_extents(const ConvProblem& a) {
  for (const std::int64_t extent :
       {a.n,         a.c,        a.d,          a.t,         a.stride_d,   a.dilation_d,
        a.pad_front, a.pad_back, a.z(),        a.h,         a.w,          a.k,
        a.r,         a.s,        a.stride_h,   a.stride_w,  a.dilation_h, a.dilation_w,
        a.pad_top,   a.pad_left, a.pad_bottom, a.pad_right, a.p(),        a.q()})
    if (extent > kMostExtent)
      return Support::no(fmt::format("an extent of {} is more than {}", extent, kMostExtent));
  return Support::yes();
}

ConvExtents extents_of(const ConvProblem& a) {
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  return {.n = std::max(small(a.n), 1),
          .c = small(a.c),
          .h = small(a.h),
          .w = small(a.w),
          .k = small(a.k),
          .r = small(a.r),
          .s = small(a.s),
          .groups = small(a.groups),
          .stride_h = small(a.stride_h),
          .stride_w = small(a.stride_w),
          .dilation_h = small(a.dilation_h),
          .dilation_w = small(a.dilation_w),
          .pad_top = small(a.pad_top),
          .pad_left = small(a.pad_left),
          .p = small(a.p()),
          .q = small(a.q()),
          .d = small(a.d),
          .t = small(a.t),
          .stride_d = small(a.stride_d),
          .dilation_d = small(a.dilation_d),
          .pad_front = small(a.pad_front),
          .z = small(a.z()),
          .nhwc = a.layout == Layout::nhwc,
          .activation = activation_of(a.activation),
          .alpha = a.alpha,
          .beta = a.beta,
          .residual = a.residual,
          .eager = rounds_each_step(a),
          .x_type = element_type_of(a.dtype.x),
          .y_type = element_type_of(a.dtype.y),
          .bias_type = element_type_of(a.dtype.bias)};
}

ConvExtents extents_of(const Computed& part) {
  ConvExtents extents = extents_of(static_cast<const ConvProblem&>(part));
  extents.lies = part.lies;
  return extents;
}

Computed computed_part(const ForwardPart& part) {
  Computed computed{part.problem, part.weights, part.bias};
  if (part.is_whole()) return computed;
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  const auto& [d, h, w] = std::tie(part.depth, part.height, part.width);
  computed.lies = {.residues_d = small(d.residues),
                   .residues_h = small(h.residues),
                   .residues_w = small(w.residues),
                   .stride_d = small(d.stride),
                   .stride_h = small(h.stride),
                   .stride_w = small(w.stride),
                   .crop_d = small(d.crop),
                   .crop_h = small(h.crop),
                   .crop_w = small(w.crop),
                   .d = small(d.extent),
                   .h = small(h.extent),
                   .w = small(w.extent),
                   .step_d = small(d.step),
                   .step_h = small(h.step),
                   .step_w = small(w.step),
                   .whole_h = small(h.whole),
                   .whole_w = small(w.whole)};
  return computed;
}

ConvNumbers numbers_of(const ConvProblem& a) {
  return {.n = a.n,
          .c = a.c,
          .k = a.k,
          .groups = a.groups,
          .depth = {a.d, a.z(), a.t, a.stride_d, a.dilation_d, a.pad_front},
          .height = {a.h, a.p(), a.r, a.stride_h, a.dilation_h, a.pad_top},
          .width = {a.w, a.q(), a.s, a.stride_w, a.dilation_w, a.pad_left},
          .alpha = a.alpha,
          .beta = a.beta};
}

}  // namespace convtune::cuda
