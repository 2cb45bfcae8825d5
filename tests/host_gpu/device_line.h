// Which line of device code called, for messages.
#pragma once

#include <string>

#include "fibers.h"

namespace host_gpu {

// ", cuda/algorithms/NAME/NAME.cuh:123", or nothing where it cannot be found.
std::string device_line_of_caller(const Fiber& fiber);

}  // namespace host_gpu
