// The compiler of kernels, and which of them it compiles once for all problems.
#pragma once

#include <string>

#include "contract/backend.h"

namespace convtune {

std::string kernel_compiler();  // its build; empty where it is not found
// Throws Error{unsupported}, "`what`: NVRTC is not found (...)", where there is none.
void require_kernel_compiler(const std::string& what);

// The name of the kernel that the config compiles where that kernel serves every problem; else empty.
std::string shared_kernel(const Algorithm& algorithm, const ConvProblem& problem, const DeviceInfo& device,
                          const Config& config);

}  // namespace convtune
