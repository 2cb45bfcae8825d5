// The oracle: one output element in double precision, so that all of a small output, or a sample of
// a large one, can be checked. What every other answer is judged by.
#pragma once

#include <cstdint>

#include "convtune/problem.h"

namespace convtune::cpu {

struct OracleValue {
  double value;      // act(bias + sum of products)
  double magnitude;  // |bias| + sum of |x*w|: what a rounding error is measured against
};

// Output element (n, k, p, q) of host tensors of dtype f32. Padding is never multiplied, so a NaN
// or Inf weight does not spread through it. ReLU keeps NaN.
OracleValue oracle(const Conv2dProblem& problem, const float* x, const float* w, const float* bias,
                   std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q);

}  // namespace convtune::cpu
