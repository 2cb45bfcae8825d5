// The algorithms with kernels of our own: one function each, defined in its folder.
#pragma once

#include <vector>

#include "contract/backend.h"

namespace convtune::cpu {

const Algorithm& amx();
const Algorithm& direct();
const Algorithm& direct_depthwise();
const Algorithm& implicit_gemm();
const Algorithm& implicit_gemm_wgrad();
const Algorithm& winograd();
const Algorithm& winograd_filters();
const Algorithm& winograd_rows();

// Lists all of them, in the order in which an unmeasured problem is offered round.
std::vector<const Algorithm*> own_algorithms();

}  // namespace convtune::cpu
