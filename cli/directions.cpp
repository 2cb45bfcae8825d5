// Directions of a layer.
#include "directions.h"

namespace convtune::cli {
namespace {

void drop_epilogue(ConvProblem& problem) {
  problem.residual = false;
  problem.activation = Activation::none;
  problem.alpha = problem.beta = 0;
  problem.cache = 0;
}

}  // namespace

ConvProblem in_direction(ConvProblem problem, Direction direction) {
  if (problem.direction == direction) return problem;
  drop_epilogue(problem);
  // A transposed layer's bias is of other channels.
  problem.bias &= problem.direction != Direction::backward_data && direction != Direction::backward_data;
  problem.direction = direction;
  if (!problem.name.empty())
    problem.name += direction == Direction::backward_data      ? "_d"
                    : direction == Direction::backward_weights ? "_w"
                                                               : "_y";
  return problem;
}

std::vector<ConvProblem> of_training(ConvProblem layer, bool first) {
  const Direction of_input =
      layer.direction == Direction::forward ? Direction::backward_data : Direction::forward;
  drop_epilogue(layer);
  std::vector<ConvProblem> found = {layer};
  if (!first) found.push_back(in_direction(layer, of_input));
  found.push_back(in_direction(layer, Direction::backward_weights));
  return found;
}

}  // namespace convtune::cli
