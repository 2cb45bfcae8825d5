// Declares an algorithm's abilities as data, and the refusal of everything
// else.
#pragma once

#include <vector>

#include "convtune/error.h"
#include "convtune/problem.h"

namespace convtune {

// As it stands: forward 2-D convolutions of f32 tensors with bias and ReLU.
struct Abilities {
  std::vector<DType> types = {DType::f32};  // the types of x, w, y and bias, all alike
  bool mixed_types = false;                 // any of them for any tensor
  bool f32_bias = false;                    // the bias may be f32 whatever the others are
  std::vector<Activation> activations = {Activation::none, Activation::relu};
  bool residual = false;
  bool eager_rounding = false;  // for tensors narrower than f32, where it makes a difference
  bool depth = false;           // 3-D
  bool snake = false;           // behind the sum, and beside it
  bool cache = false;           // frames before x from a second tensor
  std::vector<Direction> directions = {Direction::forward};
};

// Reasons are fit to print after "because".
Support within(const Abilities& abilities, const ConvProblem& problem);

}  // namespace convtune
