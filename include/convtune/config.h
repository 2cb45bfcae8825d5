// Config: what an algorithm chooses for a problem.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convtune/language.h"

namespace convtune {

// One point of an algorithm's search space: named integers in a fixed order.
// Text form "vectors=4 channels=6", both ways.
struct Config {
  std::vector<std::pair<std::string, std::int64_t>> values;

  std::int64_t at(std::string_view name) const;  // throws Error{invalid_argument} if absent
  bool operator==(const Config&) const = default;
};
std::string to_string(const Config&);
Config parse_config(std::string_view text);

}  // namespace convtune
