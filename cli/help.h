// Prints --help of a command, and the page of `convtune` alone.
#pragma once

#include <string>

#include "command_table.h"
#include "table.h"

namespace convtune::cli {

std::string help_text(const CommandEntry& command, const Style& style);
std::string start_page(const Style& style);

}  // namespace convtune::cli
