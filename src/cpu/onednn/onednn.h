// oneDNN, the incumbent on CPUs: loaded while running, where it is found.
#pragma once

#include "contract/backend.h"

namespace convtune::cpu {

const Algorithm* onednn();  // null where oneDNN was not found

}  // namespace convtune::cpu
