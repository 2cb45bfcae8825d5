// Padding is never multiplied: an infinite or NaN weight that lies over the padding leaves an output
// alone. Kernels that multiply a zero-filled window would make 0 * Inf = NaN of it; where the weights
// hold such a value (they hardly ever do), the outputs that touch the padding are computed again.
#pragma once

#include <cstdint>

#include "cpu/reference/oracle.h"

namespace convtune::cpu {

// True where any of the values is infinite or NaN.
bool any_non_finite(const float* values, std::int64_t count);

// Recomputes, by the oracle, every output whose filter window reaches past the image.
void repair_padded_outputs(const ConvProblem& problem, const HostValues& values, void* y);

}  // namespace convtune::cpu
