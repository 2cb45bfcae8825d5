// See epilogue.h.
#include "problem/epilogue.h"

#include <cmath>

#include "problem/activation.h"
#include "problem/element.h"

namespace convtune {

double epilogue(const ConvProblem& problem, double sum, double bias, double residual) {
  const auto step = [&](double value) {
    return problem.rounding == Rounding::eager ? rounded(problem.result_type(), value) : value;
  };
  double value = step(sum);
  if (problem.bias) value = step(value + bias);
  if (problem.residual) value = step(value + residual);
  return activate(problem.activation, value, static_cast<double>(problem.alpha),
                  static_cast<double>(problem.beta));
}

double snaked(const ConvProblem& problem, double value, double alpha, double scale) {
  if (problem.rounding == Rounding::eager) value = rounded(problem.result_type(), value);
  const double sine = std::sin(alpha * value);
  return value + scale * sine * sine;
}

}  // namespace convtune
