// A sum that is not finite may be none of its own products' doing: the transforms make an infinity less an
// infinity, overflow, and read inputs beside the output's window. It is summed again from the weights as they
// came.
#pragma once

#include <cstdint>

#include "convtune/problem.h"

namespace convtune::cpu {

struct OutputPlace {
  std::int64_t n, k, row, col, frame = 0;
};

// Replaces a `sum` that is not finite by the sum of x * w of its output, in double. Padding is never
// multiplied.
void repair_sum(const ConvProblem& problem, const float* x, const float* w, const OutputPlace& at,
                float& sum);

}  // namespace convtune::cpu
