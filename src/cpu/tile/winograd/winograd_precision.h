// The problems that Winograd's transforms of both axes are for: a precision must allow their errors
// (docs/decisions/0038, 0066), and they must pay.
#pragma once

#include "convtune/device.h"
#include "convtune/error.h"
#include "convtune/problem.h"

namespace convtune::cpu {

// True where the filter is not 3x3 of stride 1 and is cut into parts (winograd_parts.h).
bool is_decomposed(const ConvProblem& problem);

Support winograd_within_precision(const ConvProblem& problem, const DeviceInfo& info);

}  // namespace convtune::cpu
