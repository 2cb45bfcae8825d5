// Knowledge of a Triton file's launches from beside the file: the problem that a wrapper is called for, and
// values of its names.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convtune/problem.h"

namespace convtune {

struct TritonGiven {
  std::optional<ConvProblem> problem;
  std::vector<std::pair<std::string, std::string>> values;  // RefineOptions::let
};
// Returns the problem's tensors by the names that wrappers round a convolution have for them, the problem's
// values, and RefineOptions::let.
nlohmann::json to_json(const TritonGiven& given);

// Throws Error{invalid_argument} for a name that is none of Python's, or a value that is no number, truth
// value, text, tuple of numbers or list of a tensor's extents.
void check_let(std::string_view name, std::string_view value);

}  // namespace convtune
