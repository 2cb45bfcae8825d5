// The vector code of the depthwise convolution of bf16, written once with Highway and compiled by
// foreach_target.h for each instruction set (docs/decisions/0004).
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/direct_depthwise/depthwise_bf16_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/algorithms/direct_depthwise/depthwise_long_rows-inl.h"
#include "cpu/algorithms/direct_depthwise/depthwise_pixels-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Unused where depthwise_kernels() has no width for the target.
[[maybe_unused]] constexpr DepthwiseKernels<Bf16> kOfType = {kLanes, kernels_first<Bf16>,
                                                             pixel_kernel_of<Bf16>};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

template <>
const DepthwiseKernels<Bf16>* depthwise_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(DepthwiseKernels<Bf16>, vector_bits, kOfType);
}

}  // namespace convtune::cpu
#endif
