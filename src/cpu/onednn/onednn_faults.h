// Problems that oneDNN answers wrongly, or ends the process over, by version: it is never asked for them, and
// they are refused in these words. Found by random problems, of `convtune verify` and
// tests/unit/cpu/onednn_test.cpp.
#pragma once

#include <string>

#include "convtune/problem.h"
#include "cpu/onednn/onednn_api.h"

namespace convtune::cpu {

// Empty where none is known.
std::string onednn_fault(const ConvProblem&, const OnednnVersion&);

}  // namespace convtune::cpu
