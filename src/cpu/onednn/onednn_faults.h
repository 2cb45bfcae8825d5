// What oneDNN answers wrongly, or ends the process over, by version: never asked, and refused in these words.
// Found by random problems, of `convtune verify` and tests/unit/cpu/onednn_test.cpp.
//
// Less strict than convtune's own kernels, and left so: its ReLU turns NaN into 0, and its GEMM path
// multiplies padding, so an Inf weight makes NaN at the edges (2.6.3, AVX-512).
#pragma once

#include <string>

#include "convtune/problem.h"
#include "cpu/onednn/onednn_api.h"

namespace convtune::cpu {

// Empty where none is known.
std::string onednn_fault(const ConvProblem&, const OnednnVersion&);

}  // namespace convtune::cpu
