// A target as people read it: its limits and rates, one a line.
#pragma once

#include <string>

#include "convtune/target.h"

namespace convtune::cli {

std::string target_sheet(const Target& target);
// Returns the help text of an option that takes a target: the names that exist.
std::string target_help();

}  // namespace convtune::cli
