// The directions in which a layer runs when a network is trained.
#pragma once

#include <vector>

#include "convtune/problem.h"

namespace convtune::cli {

// The problem in that direction. Where it is another than the problem's, there is no epilogue, a bias only
// where both have one or its gradient, and the name ends in _d, _w or _y.
ConvProblem in_direction(ConvProblem problem, Direction direction);

// Returns the problems that a step of training runs for a layer: the layer without residual and activation,
// which are operators of their own there, the gradient of its input, unless `first`, and that of its weights.
// A layer is a forward problem, or a transposed one.
std::vector<ConvProblem> of_training(ConvProblem layer, bool first);

}  // namespace convtune::cli
