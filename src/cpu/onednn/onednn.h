// oneDNN, the incumbent on CPUs: loaded while running, where it is found.
#pragma once

#include <string>

#include "contract/backend.h"

namespace convtune::cpu {

const Algorithm* onednn();      // null where oneDNN was not found
std::string onednn_version();   // "3.2.0", or why there is none
std::string describe_onednn();  // its version and file, or why there is none
bool onednn_is_unloadable();    // whether its file is there and could not be loaded

}  // namespace convtune::cpu
