// The algorithms with kernels of our own: one function each, defined in its folder.
#pragma once

#include "contract/backend.h"

namespace convtune::cuda {

const Algorithm& depthwise_weight_gradient_half();
const Algorithm& depthwise_weight_gradient_half_sm90();
const Algorithm& depthwise_weight_gradient_sm80();
const Algorithm& direct_body_half_nchw_sm90();
const Algorithm& direct_body_half_sm90();
const Algorithm& direct_body_sm90();
const Algorithm& direct_depthwise_3d_sm80();
const Algorithm& direct_depthwise_half();
const Algorithm& direct_depthwise_half_sm90();
const Algorithm& direct_depthwise_sm80();
const Algorithm& direct_few_half();
const Algorithm& direct_fma_sm80();
const Algorithm& direct_grouped_half();
const Algorithm& direct_patch_sm90();
const Algorithm& direct_stem_half();
const Algorithm& direct_stem_sm80();
const Algorithm& direct_stem_sm90();
const Algorithm& general_sm80();  // takes everything
const Algorithm& implicit_gemm_half_sm80();
const Algorithm& implicit_gemm_half_sm90();
const Algorithm& implicit_gemm_sm80();
const Algorithm& implicit_gemm_sm90();
const Algorithm& weight_gradient_half_sm90();
const Algorithm& weight_gradient_sm80();

}  // namespace convtune::cuda
