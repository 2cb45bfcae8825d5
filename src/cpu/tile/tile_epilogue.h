// The activation of a problem for kernels that finish sums in registers.
#pragma once

#include <limits>

#include "convtune/problem.h"

namespace convtune::cpu {

struct Epilogue {
  Activation activation = Activation::none;
  // Its parameters. relu is a clip here, and none has the bounds of a clip that changes nothing.
  float alpha = -std::numeric_limits<float>::infinity(), beta = std::numeric_limits<float>::infinity();

  bool has_bounds() const { return activation == Activation::none || activation == Activation::clip; }
  // Tells whether it takes so few instructions that every kernel has them.
  bool is_short() const { return has_bounds() || activation == Activation::leaky_relu; }
};

inline Epilogue epilogue_of(const ConvProblem& problem) {
  if (problem.activation == Activation::none) return {};
  if (problem.activation == Activation::relu) return {.activation = Activation::clip, .alpha = 0};
  return {problem.activation, problem.alpha, problem.beta};
}

}  // namespace convtune::cpu
