// The vector code of the depthwise convolution of f32, written once with Highway and compiled by
// foreach_target.h for each instruction set (docs/decisions/0004).
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/direct_depthwise/depthwise_f32_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/algorithms/direct_depthwise/depthwise_long_rows-inl.h"
#include "cpu/algorithms/direct_depthwise/depthwise_pixels-inl.h"
#include "cpu/algorithms/direct_depthwise/depthwise_rows-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR
namespace convtune::cpu {
namespace HWY_NAMESPACE {

inline const PlaneKernels<float>* planes_of_floats(const PlaneTile& tile) {
#if CONVTUNE_DEPTHWISE_ROWS
  if (tile.rows == kAllRows) return row_kernels_of(tile);
#endif
  return kernels_first<float>(tile);
}

// Unused where depthwise_kernels() has no width for the target.
[[maybe_unused]] constexpr DepthwiseKernels<float> kOfType = {kLanes, planes_of_floats,
                                                              pixel_kernel_of<float>};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

template <>
const DepthwiseKernels<float>* depthwise_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(DepthwiseKernels<float>, vector_bits, kOfType);
}

}  // namespace convtune::cpu
#endif
