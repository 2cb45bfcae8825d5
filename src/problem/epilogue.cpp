// See epilogue.h.
#include "problem/epilogue.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "problem/element.h"

namespace convtune {

double activate(Activation activation, double v, double alpha, double beta) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return v < 0 ? 0 : v;
    case Activation::clip:
      return v < alpha ? alpha : v > beta ? beta : v;
    case Activation::silu:
      return v / (1 + std::exp(-v));
    case Activation::gelu_erf:
      return 0.5 * v * (1 + std::erf(v / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return 0.5 * v *
             (1 + std::tanh(std::numbers::sqrt2 * std::numbers::inv_sqrtpi * (v + 0.044715 * v * v * v)));
    case Activation::hardswish:
      return std::isnan(v) ? v : v * std::clamp(v + 3, 0.0, 6.0) / 6;
    case Activation::leaky_relu:
      return v > 0 ? v : alpha * v;
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-v));
  }
  return v;
}

double epilogue(const ConvProblem& problem, double sum, double bias, double residual) {
  const auto step = [&](double value) {
    return problem.rounding == Rounding::eager ? rounded(problem.dtype.y, value) : value;
  };
  double value = step(sum);
  if (problem.bias) value = step(value + bias);
  if (problem.residual) value = step(value + residual);
  return activate(problem.activation, value, static_cast<double>(problem.alpha),
                  static_cast<double>(problem.beta));
}

}  // namespace convtune
