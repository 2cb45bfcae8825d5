// Describes the epilogue of sums, for kernels that finish them in registers.
#pragma once

#include <cstdint>
#include <limits>

#include "contract/backend.h"
#include "convtune/problem.h"

namespace convtune::cpu {

struct Epilogue {
  Activation activation = Activation::none;
  // Its parameters. relu is a clip here, and none has the bounds of a clip that changes nothing.
  float alpha = -std::numeric_limits<float>::infinity(), beta = std::numeric_limits<float>::infinity();

  bool has_bounds() const { return activation == Activation::none || activation == Activation::clip; }
  // Tells whether it takes so few instructions that every kernel has them.
  bool is_short() const {
    return has_bounds() || activation == Activation::leaky_relu || activation == Activation::hardswish;
  }
};

inline Epilogue epilogue_of(const ConvProblem& problem) {
  if (problem.activation == Activation::none) return {};
  if (problem.activation == Activation::relu) return {.activation = Activation::clip, .alpha = 0};
  return {problem.activation, problem.alpha, problem.beta};
}

// Memory of this thread's for a register tile that is stored to be finished. In a kernel's own frame it would
// cost each of its calls the alignment of that.
constexpr std::int64_t kMostTileFloats = 32 * 16;
float* tile_buffer();

// Addresses of outputs, and of the residual that is added to them: null, or as they lie, and perhaps they
// themselves.
template <class T>
struct Outputs {
  T* y;
  const T* residual;

  Outputs operator+(std::int64_t elements) const {
    return {y + elements, residual == nullptr ? nullptr : residual + elements};
  }
};
template <class T>
Outputs<T> outputs_of(const ConvProblem& problem, const Tensors& tensors) {
  return {static_cast<T*>(tensors.y), problem.residual ? static_cast<const T*>(tensors.residual) : nullptr};
}

}  // namespace convtune::cpu
