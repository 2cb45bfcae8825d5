// Reads JSON that others wrote as a tree, within limits of depth and of values, so that it cannot take the
// machine's memory.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace convtune {

constexpr int kMostJsonDepth = 32;
constexpr std::size_t kMostJsonValues = 8'000'000;  // names of fields are counted too

// Throws Error{invalid_argument}: "is not JSON: '...'", "nests lists and objects more than 32 deep".
nlohmann::json parse_foreign_json(std::string_view text);

}  // namespace convtune
