#include "cuda/launch/extents.h"

#include <fmt/format.h>

#include <algorithm>

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMostExtent = 1 << 20;  // so that no product of three overflows 64 bits

}  // namespace

Support fits_extents(const Conv2dProblem& a) {
  for (const std::int64_t extent :
       {a.n, a.c, a.h, a.w, a.k, a.r, a.s, a.stride_h, a.stride_w, a.dilation_h, a.dilation_w, a.pad_top,
        a.pad_left, a.pad_bottom, a.pad_right, a.p(), a.q()})
    if (extent > kMostExtent)
      return Support::no(fmt::format("an extent of {} is more than {}", extent, kMostExtent));
  return Support::yes();
}

Conv2dExtents extents_of(const Conv2dProblem& a) {
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
          .relu = a.activation == Activation::relu,
          .nhwc = a.layout == Layout::nhwc};
}

}  // namespace convtune::cuda
