// The scripts by which shells complete convtune's words.
#pragma once

#include <string>

#include "command_table.h"

namespace convtune::cli {

std::string bash_completion(const CommandEntry& root);
std::string zsh_completion(const CommandEntry& root);
std::string fish_completion(const CommandEntry& root);

}  // namespace convtune::cli
