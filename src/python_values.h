// What whole-number Python comes to: enough to follow a wrapper from tensors' shapes to a launch's grid.
// Nothing is run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "python_text.h"

namespace convtune {

// A number; the numbers of a tuple or of a tensor's shape; or the config that Triton hands to a grid
// (`meta`).
struct PythonValue {
  enum class Type { unknown, number, tuple, tensor, meta } type = Type::unknown;
  std::vector<std::int64_t> numbers;

  static PythonValue of(std::int64_t number) { return {Type::number, {number}}; }
};

struct PythonFunction {
  std::string parameter;  // its first
  PythonTokens body;      // of a lambda: the expression; of a def: its lines
  bool is_lambda = false;
};

struct PythonScope {
  std::map<std::string, PythonValue, std::less<>> values;
  std::map<std::string, PythonFunction, std::less<>> functions;
  std::map<std::string, std::int64_t, std::less<>> meta;  // what `meta['NAME']` is
  std::function<PythonValue(std::string_view)> by_name;   // of an attribute: "self.conv1.stride"
};

// Throws Error{invalid_argument}, "line 3: ...", for what it does not follow.
PythonValue evaluate(PythonTokens expression, const PythonScope& scope);

// Reads the lines of a def up to `until` (null: all) into the scope; answers the first return's expression.
// What is assigned within an `if` or a loop is known only where it makes no difference.
PythonTokens follow(PythonTokens body, const PythonToken* until, PythonScope& scope);

}  // namespace convtune
