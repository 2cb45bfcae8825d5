// The activations of kernels that finish sums in registers, as bounds.
#pragma once

#include <limits>

#include "convtune/problem.h"

namespace convtune::cpu {

// What is below or above is the bound, NaN stays.
struct Bounds {
  float lower = -std::numeric_limits<float>::infinity(), upper = std::numeric_limits<float>::infinity();
};

// Of Activation::none, relu and clip.
inline Bounds bounds_of(const ConvProblem& problem) {
  if (problem.activation == Activation::relu) return {.lower = 0};
  if (problem.activation == Activation::clip) return {.lower = problem.alpha, .upper = problem.beta};
  return {};
}

}  // namespace convtune::cpu
