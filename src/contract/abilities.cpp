// See abilities.h.
#include "contract/abilities.h"

#include <fmt/format.h>

#include <algorithm>

#include "problem/epilogue.h"

namespace convtune {
namespace {

template <class Value>
bool holds(const std::vector<Value>& values, Value wanted) {
  return std::find(values.begin(), values.end(), wanted) != values.end();
}

template <class Value>
std::string names(const std::vector<Value>& values) {
  std::string list;
  for (const Value value : values) list += fmt::format("{}{}", list.empty() ? "" : ", ", to_string(value));
  return list;
}

}  // namespace

Support within(const Abilities& abilities, const ConvProblem& problem) {
  DTypes types = problem.dtype;
  if (abilities.f32_bias && types.bias == DType::f32) types.bias = types.w;
  for (const DType type : {types.x, types.w, types.y, types.bias})
    if (!holds(abilities.types, type))
      return Support::no(fmt::format("it is for {} tensors only, and these are {}", names(abilities.types),
                                     to_string(problem.dtype)));
  if (types != DTypes(types.x) && !abilities.mixed_types)
    return Support::no(
        fmt::format("it is for tensors of one type, and these are {}", to_string(problem.dtype)));
  if (!holds(abilities.directions, problem.direction))
    return Support::no(fmt::format(
        "it computes {} only, not {}",
        abilities.directions == std::vector{Direction::forward} ? "forward" : names(abilities.directions),
        to_string(problem.direction)));
  if (problem.has_depth() && !abilities.depth) return Support::no("it has no third dimension");
  if (problem.cache > 0 && !abilities.cache)
    return Support::no("its frames are of one tensor, and these have a cache before them");
  if (!holds(abilities.activations, problem.activation))
    return Support::no(fmt::format("its activations are {}, not {}", names(abilities.activations),
                                   to_string(problem.activation)));
  if (problem.snake != Snake::none && !abilities.snake) return Support::no("it has no snake behind its sums");
  if (problem.residual && !abilities.residual) return Support::no("it adds no residual");
  if (rounds_each_step(problem) && !abilities.eager_rounding)
    return Support::no("it rounds once, not eagerly");
  return Support::yes();
}

}  // namespace convtune
